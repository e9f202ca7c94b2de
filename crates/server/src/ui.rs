//! Inspector pages, compiled into the program. They contain no data and need no token. Their data comes from the API, with the token
//! of the user.
//!
//! The login link has the token in its fragment, after the `#`. Browsers do not send the fragment to any server. The page keeps the
//! token for the tab only. There is no cookie, so no other page can make a browser use the token.

use axum::Router;
use axum::extract::OriginalUri;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{Method, StatusCode};

use crate::app_state::App;

/// The content security policy of the pages. They may load scripts, styles, images and data from this server only. Trusted types
/// prevent text from becoming markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A static file of the inspector.
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($kind:ident $name:literal),* $(,)?) => {
        &[$(File { path: concat!("/ui/", $name), kind: $kind, text: include_str!(concat!("../ui/", $name)) }),*]
    };
}

/// All files except the index page.
const FILES: &[File] = files![
    CSS "style.css",
    SVG "icon.svg",
    JS "app.js",
    JS "api.js",
    JS "show.js",
    JS "parts.js",
    JS "place.js",
    JS "actions.js",
    JS "chart.js",
    JS "diff.js",
    JS "pages/overview.js",
    JS "pages/streams.js",
    JS "pages/stuck.js",
    JS "pages/runs.js",
    JS "pages/timeline.js",
    JS "pages/work.js",
    JS "pages/leases.js",
    JS "pages/locks.js",
    JS "pages/graph.js",
    JS "pages/past.js",
    JS "pages/state.js",
    JS "pages/schedules.js",
    JS "pages/audit.js",
    JS "vendor/htm-preact.js",
    JS "vendor/uplot.js",
    CSS "vendor/uplot.css",
];

/// The index page, which loads the other files.
const INDEX: File = File { path: "/ui/", kind: HTML, text: include_str!("../ui/index.html") };

/// Returns whether the request is for a page. Pages contain no data and need no token.
pub(crate) fn is_page(method: &Method, path: &str) -> bool {
    let known =
        || path == "/" || path == "/ui" || path == INDEX.path || FILES.iter().any(|file| file.path == path);
    (method == Method::GET || method == Method::HEAD) && known()
}

/// Builds the routes of the pages.
pub(crate) fn router() -> Router<App> {
    let mut router = Router::new().route("/", get(to_index)).route("/ui", get(to_index));
    router = router.route(INDEX.path, get(async || INDEX.answer()));
    for file in FILES {
        router = router.route(file.path, get(async || file.answer()));
    }
    router
}

impl File {
    fn answer(&self) -> Response {
        let mut response = self.text.into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        response
    }
}

/// Redirects to the index page, under the path at which the server is mounted.
async fn to_index(OriginalUri(uri): OriginalUri) -> Response {
    let mounted = uri.path().trim_end_matches('/');
    let to = format!("{}{}", mounted.strip_suffix("/ui").unwrap_or(mounted), INDEX.path);
    match HeaderValue::from_str(&to) {
        Ok(to) => (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}
