//! The frame around every page of the operator, and the pages without a session.

use super::session::Operator;
use crate::sinks::escape;

/// A whole document; `main` is HTML. Without an operator there is nothing to sign out of.
pub(super) fn document(title: &str, operator: Option<&Operator>, main: &str) -> String {
    let title = escape(title);
    let account = operator.map_or_else(String::new, |operator| {
        format!(
            "<form class=\"find\" role=\"search\" action=\"/admin/event\">\n\
             <label class=\"hidden\" for=\"q\">Find an event</label>\n\
             <input id=\"q\" type=\"search\" name=\"q\" maxlength=\"256\" placeholder=\"Event, slug, type or correlation id\">\n\
             <button>Find</button>\n</form>\n\
             <form method=\"post\" action=\"/admin/sign-out\">{}<button class=\"quiet\">Sign out {}</button></form>\n",
            key(operator),
            escape(&operator.caller.name)
        )
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <title>{title} · vayu-articles</title>\n<link rel=\"stylesheet\" href=\"/admin/admin.css\">\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the content</a>\n\
         <header>\n<a class=\"brand\" href=\"/admin\">Operations</a>\n{account}</header>\n\
         <main id=\"main\">\n{main}</main>\n</body>\n</html>\n"
    )
}

/// What proves that a form is of this session.
pub(super) fn key(operator: &Operator) -> String {
    format!("<input type=\"hidden\" name=\"key\" value=\"{}\">", operator.form_key)
}

pub(super) fn sign_in(error: Option<&str>) -> String {
    let error =
        error.map_or_else(String::new, |text| format!("<p class=\"bad\" role=\"alert\">{}</p>\n", escape(text)));
    let main = format!(
        "<section class=\"card narrow\">\n<h1>Sign in</h1>\n{error}\
         <form method=\"post\" action=\"/admin/sign-in\">\n<label for=\"token\">Administrator’s token</label>\n\
         <input id=\"token\" type=\"password\" name=\"token\" autocomplete=\"current-password\" required autofocus>\n\
         <button>Sign in</button>\n</form>\n\
         <p class=\"hint\">The start of the program says in which file it is.</p>\n</section>\n"
    );
    document("Sign in", None, &main)
}

pub(super) fn message(title: &str, text: &str) -> String {
    let main = format!(
        "<section class=\"card narrow\">\n<h1>{}</h1>\n<p>{}</p>\n<p><a href=\"/admin\">Back</a></p>\n</section>\n",
        escape(title),
        escape(text)
    );
    document(title, None, &main)
}
