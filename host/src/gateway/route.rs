//! Routes requests by host and path.
//!
//! A function with a host of its own has a separate origin in a browser, and sees the whole path.
//! At all other hosts, functions share an origin and are distinguished by the first segment of the
//! path.

use faasw_client::{FunctionName, HostName};
use http::{Request, Uri};

use super::host::host_of;
use crate::message::FunctionTarget;

/// How functions are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sites {
    /// The node's domain: the host `NAME` below it is the function `NAME`.
    pub(crate) domain: Option<HostName>,
    /// The only function that is served, at all paths of all hosts.
    pub(crate) root: Option<FunctionName>,
    /// Whether functions are found by path, at hosts that belong to no function. If unset, they are
    /// if there is no domain.
    pub(crate) paths: Option<bool>,
}

/// The destination of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The node's liveness probe.
    Health,
    /// The node as a whole (RFC 9112, section 3.2.4).
    Asterisk,
    /// A function.
    Function { name: String, site: Site },
    /// No destination, with the message for the client.
    Nothing(&'static str),
}

/// How a function was addressed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// The function has the whole host.
    Host,
    /// The function has a path of a shared host.
    Path {
        /// The URI that the function sees, without the name.
        uri: Uri,
        /// Whether the path was the name alone, without a slash after it.
        is_bare: bool,
    },
}

impl Sites {
    /// Routes a request. `owner` returns the function that was deployed with a host.
    pub(super) fn route<B>(
        &self,
        request: &Request<B>,
        owner: impl FnOnce(&str) -> Option<FunctionName>,
    ) -> Route {
        let uri = request.uri();
        if uri.path() == "*" {
            return Route::Asterisk;
        }
        if let Some(name) = &self.root {
            return Route::at_host(name.as_str());
        }
        let is_health = matches!(uri.path(), "/healthz" | "/healthz/");
        let host = host_of(request).unwrap_or_default();
        let below = self
            .domain
            .as_ref()
            .and_then(|domain| domain.part_below(&host));
        match below {
            // The domain itself belongs to no function; only the node is served there.
            Some("") if is_health => Route::Health,
            // A host of more than one label below the domain, or an invalid name, belongs to no
            // function.
            Some(name) if FunctionName::new(name).is_ok() => Route::at_host(name),
            Some(_) => Route::Nothing("no function at this host; use NAME and the node's domain"),
            None => match owner(&host) {
                Some(name) => Route::at_host(name.as_str()),
                None if is_health => Route::Health,
                None if self.paths.unwrap_or(self.domain.is_none()) => by_path(uri),
                None => Route::Nothing(
                    "no function at this host; this node does not serve /NAME/ paths",
                ),
            },
        }
    }
}

impl Route {
    fn at_host(name: &str) -> Self {
        Self::Function {
            name: name.into(),
            site: Site::Host,
        }
    }
}

const NO_NAME: Route = Route::Nothing("no function in this URL; use /NAME/");

fn by_path(uri: &Uri) -> Route {
    match FunctionTarget::of(uri) {
        Some(FunctionTarget { name, uri, is_bare }) => Route::Function {
            name,
            site: Site::Path { uri, is_bare },
        },
        None => NO_NAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(domain: Option<&str>, paths: Option<bool>) -> Sites {
        Sites {
            domain: domain.map(|domain| HostName::new(domain).unwrap()),
            paths,
            root: None,
        }
    }

    /// Routes a request on a node on which `shop` has a host of its own.
    fn route(sites: &Sites, host: &str, target: &str) -> Route {
        let request = Request::get(target).header("host", host).body(()).unwrap();
        sites.route(&request, |host| {
            (host == "shop.test").then(|| FunctionName::new("shop").unwrap())
        })
    }

    fn by_path(name: &str, uri: &str) -> Route {
        Route::Function {
            name: name.into(),
            site: Site::Path {
                uri: uri.parse().unwrap(),
                is_bare: false,
            },
        }
    }

    #[test]
    fn the_function_name_is_removed_from_the_path() {
        for (uri, expected) in [
            ("/hello/", by_path("hello", "/")),
            ("/hello//x/../y?a?b/c", by_path("hello", "//x/../y?a?b/c")),
            ("/hello/%2e%2e/x", by_path("hello", "/%2e%2e/x")),
            ("http://host:1/hello/x", by_path("hello", "http://host:1/x")),
            ("/healthz/x", by_path("healthz", "/x")),
            ("/%68ello/%68", by_path("hello", "/%68")),
            ("/a%2Fb/x", by_path("a/b", "/x")),
        ] {
            assert_eq!(route(&Sites::default(), "h", uri), expected, "{uri}");
        }
        for (target, seen) in [("/hello", "/"), ("/hello?a=b", "/?a=b")] {
            let site = Site::Path {
                uri: seen.parse().unwrap(),
                is_bare: true,
            };
            let name = "hello".into();
            let expected = Route::Function { name, site };
            assert_eq!(route(&Sites::default(), "h", target), expected);
        }
    }

    #[test]
    fn a_root_function_receives_all_paths_and_hosts() {
        let sites = Sites {
            root: Some(FunctionName::new("f").unwrap()),
            ..sites(Some("example.com"), Some(true))
        };
        for host in ["h", "f.example.com", "other.example.com", "shop.test"] {
            for target in ["/", "//", "/g/", "/healthz", "/f/x?y"] {
                assert_eq!(route(&sites, host, target), Route::at_host("f"), "{target}");
            }
            assert_eq!(route(&sites, host, "*"), Route::Asterisk);
        }
    }

    #[test]
    fn paths_without_a_function_name_have_no_route() {
        for uri in ["/", "//", "//hello", "host:1", "/?q"] {
            assert_eq!(route(&Sites::default(), "h", uri), NO_NAME, "{uri}");
        }
        assert_eq!(route(&Sites::default(), "h", "*"), Route::Asterisk);
        assert_eq!(route(&Sites::default(), "h", "/healthz"), Route::Health);
        assert_eq!(route(&Sites::default(), "h", "/healthz/"), Route::Health);
    }

    #[test]
    fn a_host_below_the_domain_belongs_to_its_function_only() {
        for paths in [None, Some(true), Some(false)] {
            let sites = sites(Some("example.com"), paths);
            for host in ["a.example.com", "A.Example.Com:80", "a.example.com."] {
                for target in ["/", "/b/", "/healthz", "/a"] {
                    let expected = Route::at_host("a");
                    assert_eq!(route(&sites, host, target), expected, "{host} {target}");
                }
            }
            let absolute = route(&sites, "b.test", "http://a.example.com/x");
            assert_eq!(absolute, Route::at_host("a"));
            for host in [
                "example.com",
                "a.b.example.com",
                ".example.com",
                "healthz.example.com",
                "a_b.example.com",
            ] {
                let nothing = route(&sites, host, "/a/");
                assert!(matches!(nothing, Route::Nothing(_)), "{host} {nothing:?}");
            }
            assert_eq!(route(&sites, "example.com", "/healthz"), Route::Health);
        }
    }

    #[test]
    fn a_deployed_host_routes_to_its_function_only() {
        for sites in [
            sites(None, None),
            sites(None, Some(false)),
            sites(Some("example.com"), None),
        ] {
            for target in ["/", "/b/", "/healthz"] {
                assert_eq!(
                    route(&sites, "Shop.test.:1", target),
                    Route::at_host("shop")
                );
            }
        }
        // The domain takes precedence.
        let inside = route(&sites(Some("test"), None), "shop.test", "/");
        assert_eq!(inside, Route::at_host("shop"));
        let inside = route(&sites(Some("shop.test"), None), "shop.test", "/");
        assert!(matches!(inside, Route::Nothing(_)));
    }

    #[test]
    fn functions_are_routed_by_path_without_a_domain_or_if_enabled() {
        for (domain, paths, expected) in [
            (None, None, true),
            (None, Some(false), false),
            (Some("example.com"), None, false),
            (Some("example.com"), Some(true), true),
        ] {
            let sites = sites(domain, paths);
            for host in ["127.0.0.1:8080", "[::1]", "other.test", "aexample.com", ""] {
                let found = route(&sites, host, "/a/") == by_path("a", "/");
                assert_eq!(found, expected, "{host}");
                assert_eq!(route(&sites, host, "/healthz"), Route::Health);
            }
        }
    }
}
