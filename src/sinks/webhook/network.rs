//! Which addresses belong to the internet, and which to somebody's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of address that is not of the public internet `address` is; `None` for a public one.
///
/// An address that carries another one inside is judged by what could be reached through it. What is not known to be
/// public is not.
pub(super) fn inside(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => inside_v4(address),
        IpAddr::V6(address) => inside_v6(address),
    }
}

fn inside_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "unspecified",
        [127, ..] => "loopback",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "shared by a provider",
        [169, 254, ..] => "link-local",
        [192, 0, 0, _] | [192, 88, 99, _] => "reserved",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "for documentation",
        [198, 18..=19, ..] => "for benchmarks",
        [224..=239, ..] => "multicast",
        [240..=255, ..] => "reserved",
        _ => return None,
    })
}

fn inside_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return inside_v4(mapped);
    }
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        // What a network without IPv4 makes of a name that has such addresses only.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return inside_v4(embedded(high, low)),
        [0xfc00..=0xfdff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xff00..=0xffff, ..] => "multicast",
        [0x2001, 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..] => "for documentation",
        [0x2001, 0x0000..=0x01ff, ..] | [0x2002, ..] => "a tunnel's",
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    })
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_internet_is_told_by_its_kind() {
        for (kind, addresses) in [
            ("unspecified", "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0"),
            ("loopback", "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1"),
            ("private", "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 ::ffff:10.1.2.3"),
            ("private", "fc00:: fd12:3456::1 fdff:ffff::1 64:ff9b::192.168.1.1"),
            ("shared by a provider", "100.64.0.1 100.127.255.255 ::ffff:100.64.0.1"),
            ("link-local", "169.254.169.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe fe80::1 febf::1"),
            ("reserved", "192.0.0.1 192.0.0.170 192.88.99.1 240.0.0.1 255.255.255.255"),
            ("reserved", "::127.0.0.1 ::8.8.8.8 ::2 100::1 64:ff9b:1::a00:1 4000::1 fec0::1 5f00::1 64:ff9b::1:0:0"),
            ("for documentation", "192.0.2.1 198.51.100.7 203.0.113.255 2001:db8::1 3fff::1 3fff:fff::1"),
            ("for benchmarks", "198.18.0.1 198.19.255.255"),
            ("multicast", "224.0.0.1 239.255.255.255 ff02::1 ff0e::1"),
            ("a tunnel's", "2002:7f00:1:: 2002:808:808::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1"),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(inside(address.parse().unwrap()), Some(kind), "{address}");
            }
        }
    }

    #[test]
    fn what_is_of_the_internet_is_not_refused() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "3ffe::1",
        ] {
            assert_eq!(inside(address.parse().unwrap()), None, "{address}");
        }
    }
}
