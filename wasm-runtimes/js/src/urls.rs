//! URLs and queries (URL Standard), for `web/url.js`.

use url::{Url, form_urlencoded, quirks};

/// Returns the eleven parts of a URL, in the order that `web/url.js` names.
fn parts(url: &Url) -> Vec<String> {
    vec![
        quirks::href(url).to_owned(),
        quirks::origin(url),
        quirks::protocol(url).to_owned(),
        quirks::username(url).to_owned(),
        quirks::password(url).to_owned(),
        quirks::host(url).to_owned(),
        quirks::hostname(url).to_owned(),
        quirks::port(url).to_owned(),
        quirks::pathname(url).to_owned(),
        quirks::search(url).to_owned(),
        quirks::hash(url).to_owned(),
    ]
}

/// Parses a URL into its parts. Returns `None` if the text is not a URL.
pub(crate) fn parse(text: &str, base: Option<&str>) -> Option<Vec<String>> {
    let base = base.map(Url::parse).transpose().ok()?;
    let url = Url::options().base_url(base.as_ref()).parse(text).ok()?;
    Some(parts(&url))
}

/// Returns the URL with one of its parts set. If the value is not valid for that part, the URL
/// stays as it was.
pub(crate) fn set(href: &str, part: u32, value: &str) -> Option<Vec<String>> {
    let mut url = Url::parse(href).ok()?;
    // A rejected value changes nothing.
    let _ = match part {
        2 => quirks::set_protocol(&mut url, value),
        3 => quirks::set_username(&mut url, value),
        4 => quirks::set_password(&mut url, value),
        5 => quirks::set_host(&mut url, value),
        6 => quirks::set_hostname(&mut url, value),
        7 => quirks::set_port(&mut url, value),
        8 => {
            quirks::set_pathname(&mut url, value);
            Ok(())
        }
        9 => {
            quirks::set_search(&mut url, value);
            Ok(())
        }
        10 => {
            quirks::set_hash(&mut url, value);
            Ok(())
        }
        _ => return None,
    };
    Some(parts(&url))
}

/// Returns the pairs of a query, or of a form's body.
pub(crate) fn parse_form(text: &str) -> Vec<Vec<String>> {
    form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| vec![name.into_owned(), value.into_owned()])
        .collect()
}

/// Returns a query made of pairs.
pub(crate) fn serialise_form(pairs: Vec<Vec<String>>) -> String {
    let mut text = form_urlencoded::Serializer::new(String::new());
    for pair in &pairs {
        if let [name, value] = pair.as_slice() {
            text.append_pair(name, value);
        }
    }
    text.finish()
}
