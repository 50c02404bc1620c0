use std::fs;

use hyper::header::HeaderValue;

use super::*;

const TOKEN: &str = "a-token-somebody-chose";

fn headers(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
    headers
}

fn status(result: Result<Caller, Problem>) -> u16 {
    result.map_or_else(|problem| problem.status.as_u16(), |_| 200)
}

fn made(folder: &Path) -> AccessOptions {
    AccessOptions { admin: AdminToken::Made(folder.join("admin.token")), tokens: folder.join("tokens.json") }
}

#[test]
fn only_a_right_token_of_a_sufficient_role_passes() {
    let access = Access::fixed(&[("pen", Role::Write, TOKEN), ("boss", Role::Admin, "another-token-of-weight")]);
    for (value, write, admin) in [
        (format!("Bearer {TOKEN}"), 200, 403),
        (format!("bearer  {TOKEN} "), 200, 403),
        ("Bearer another-token-of-weight".to_owned(), 200, 200),
        (format!("Bearer {}", &TOKEN[1..]), 401, 401),
        (format!("Bearer {TOKEN}x"), 401, 401),
        (format!("Bearer {TOKEN} {TOKEN}"), 401, 401),
        (format!("Basic {TOKEN}"), 401, 401),
        (TOKEN.to_owned(), 401, 401),
        ("Bearer ".to_owned(), 401, 401),
        (format!("Bearer {}", "x".repeat(10_000)), 401, 401),
    ] {
        let headers = headers(&value);
        assert_eq!(status(access.authorize(&headers, Role::Write)), write, "{value}");
        assert_eq!(status(access.authorize(&headers, Role::Admin)), admin, "{value}");
    }
    assert_eq!(status(access.authorize(&HeaderMap::new(), Role::Write)), 401);
    assert_eq!(access.caller(&HeaderMap::new()), Ok(None));
    let mut twice = headers(&format!("Bearer {TOKEN}"));
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    assert_eq!(status(access.authorize(&twice, Role::Write)), 401, "which one counts is not guessed");
}

#[test]
fn the_first_start_makes_a_token_that_only_its_owner_can_read_and_later_starts_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let access = Access::open(made(folder.path())).unwrap();
    assert!(access.has_made_admin() && !access.is_chosen());
    let path = access.admin_file().unwrap().to_owned();
    let token = fs::read_to_string(&path).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(access.verify(token.trim()).unwrap().role, Role::Admin);
    assert!(!format!("{access:?}").contains(token.trim()));
    let again = Access::open(made(folder.path())).unwrap();
    assert!(!again.has_made_admin() && again.verify(token.trim()).is_some());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_token_added_or_removed_counts_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let access = Access::open(made(folder.path())).unwrap();
    let store = TokenStore::new(folder.path().join("tokens.json"));
    let pen = store.add("pen", Role::Write, 0).unwrap();
    let desk = store.add("desk", Role::Admin, 0).unwrap();
    assert!(access.is_chosen());
    let caller = access.verify(&pen).unwrap();
    assert_eq!((&*caller.name, caller.role), ("pen", Role::Write));
    assert_eq!(access.verify(&desk).unwrap().role, Role::Admin);
    let text = fs::read_to_string(folder.path().join("tokens.json")).unwrap();
    assert!(!text.contains(&pen) && !text.contains(&desk), "digests alone are kept: {text}");
    store.remove("pen").unwrap();
    assert!(access.verify(&pen).is_none() && access.verify(&desk).is_some());

    let admin = access.admin_file().unwrap().to_owned();
    let first = fs::read_to_string(&admin).unwrap();
    fs::write(&admin, format!("{TOKEN}\n")).unwrap();
    assert!(access.verify(TOKEN).is_some() && access.verify(first.trim()).is_none());
    fs::remove_file(&admin).unwrap();
    assert!(access.verify(TOKEN).is_none() && access.admin_file().is_none());
    assert!(!Access::open(made(folder.path())).unwrap().has_made_admin(), "an administrator is there: desk");
}

#[test]
fn a_damaged_file_refuses_its_tokens_and_a_mended_one_takes_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let access = Access::open(made(folder.path())).unwrap();
    let path = folder.path().join("tokens.json");
    let store = TokenStore::new(&path);
    let pen = store.add("pen", Role::Write, 0).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    for bad in ["", "{", "[]", &good.replace("write", "king"), &good.replace("pen", "admin"), &good.replace("sha", "s")]
    {
        fs::write(&path, bad).unwrap();
        assert!(access.verify(&pen).is_none(), "{bad}");
        assert!(matches!(store.list(), Err(AccessError::Malformed { .. })), "{bad}");
        assert!(matches!(Access::open(made(folder.path())), Err(AccessError::Malformed { .. })), "{bad}");
    }
    let admin = fs::read_to_string(folder.path().join("admin.token")).unwrap();
    assert!(access.verify(admin.trim()).is_some(), "the other file still counts");
    fs::write(&path, &good).unwrap();
    assert!(access.verify(&pen).is_some());
}

#[test]
fn names_are_plain_and_unique_and_two_commands_at_once_both_count() {
    let folder = tempfile::tempdir().unwrap();
    let store = TokenStore::new(folder.path().join("tokens.json"));
    for name in ["", "admin", "a b", "a/b", "é", &"x".repeat(65)] {
        assert!(matches!(store.add(name, Role::Write, 0), Err(AccessError::BadName(_))), "{name}");
    }
    std::thread::scope(|scope| {
        for n in 0..8 {
            let store = &store;
            scope.spawn(move || store.add(&format!("t{n}"), Role::Write, 0).unwrap());
        }
    });
    assert_eq!(store.list().unwrap().len(), 8);
    assert!(matches!(store.add("t3", Role::Write, 0), Err(AccessError::NameTaken(_))));
    assert!(matches!(store.remove("t9"), Err(AccessError::UnknownName(_))));
}

#[test]
fn a_token_that_somebody_chose_must_be_hard_to_guess() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.json");
    let file = folder.path().join("token");
    let open = |admin| Access::open(AccessOptions { admin, tokens: tokens.clone() });
    for bad in ["", "tiny-one", "with a blank inside", "ünïcödé-letters-here", &"x".repeat(513)] {
        let error = open(AdminToken::Given(bad.to_owned())).unwrap_err();
        assert!(matches!(error, AccessError::Unusable { .. }), "{bad}");
        assert!(bad.is_empty() || !error.to_string().contains(bad), "{error}");
        fs::write(&file, bad).unwrap();
        assert!(matches!(open(AdminToken::File(file.clone())), Err(AccessError::Unusable { .. })), "{bad}");
    }
    fs::write(&file, format!("{TOKEN}\r\n")).unwrap();
    for admin in [AdminToken::Given(TOKEN.to_owned()), AdminToken::File(file.clone())] {
        let access = open(admin).unwrap();
        assert!(access.is_chosen() && !access.has_made_admin());
        assert_eq!(&*access.verify(TOKEN).unwrap().name, ADMIN);
    }
    fs::remove_file(&file).unwrap();
    assert!(matches!(open(AdminToken::File(file)), Err(AccessError::File { .. })));
}
