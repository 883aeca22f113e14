//! `wasi:sockets`, and interfaces that SDKs name besides WASI: linked, and refused.
//!
//! Libraries of toolchains import these whether or not a program uses them, and so do worlds of an
//! SDK. Since no socket ever exists, most functions cannot be reached at all. They are defined by
//! name only, and refuse in the way that their type allows.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use wasmtime::Result;
use wasmtime::component::types::{ComponentFunc, ResultType, Type};
use wasmtime::component::{Linker, Resource, ResourceType, Val};

use super::Caller;
use crate::platform::Platform;
use crate::state::State;
use crate::supported::OTHERS;

/// An interface whose every operation is refused.
struct Refused {
    /// Name with version.
    interface: &'static str,
    /// The resources that it defines.
    resources: &'static [&'static str],
    /// The interface's functions, as components spell them.
    functions: &'static [&'static str],
}

/// Cases of error variants that take a text, and can thus carry the reason; the first existing one
/// is used.
const CASES_WITH_TEXT: [&str; 3] = ["other", "io", "runtime-error"];

/// The resources of these interfaces, none of which ever exists, except networks.
struct Absent;

/// The only network; nothing can be reached through it.
struct Network;

const INTERFACES: [Refused; 5] = [
    Refused {
        interface: "wasi:sockets/ip-name-lookup@0.2.12",
        resources: &["resolve-address-stream"],
        functions: &[
            "[method]resolve-address-stream.resolve-next-address",
            "[method]resolve-address-stream.subscribe",
            "resolve-addresses",
        ],
    },
    Refused {
        interface: "wasi:sockets/tcp@0.2.12",
        resources: &["tcp-socket"],
        functions: &[
            "[method]tcp-socket.start-bind",
            "[method]tcp-socket.finish-bind",
            "[method]tcp-socket.start-connect",
            "[method]tcp-socket.finish-connect",
            "[method]tcp-socket.start-listen",
            "[method]tcp-socket.finish-listen",
            "[method]tcp-socket.accept",
            "[method]tcp-socket.local-address",
            "[method]tcp-socket.remote-address",
            "[method]tcp-socket.is-listening",
            "[method]tcp-socket.address-family",
            "[method]tcp-socket.set-listen-backlog-size",
            "[method]tcp-socket.keep-alive-enabled",
            "[method]tcp-socket.set-keep-alive-enabled",
            "[method]tcp-socket.keep-alive-idle-time",
            "[method]tcp-socket.set-keep-alive-idle-time",
            "[method]tcp-socket.keep-alive-interval",
            "[method]tcp-socket.set-keep-alive-interval",
            "[method]tcp-socket.keep-alive-count",
            "[method]tcp-socket.set-keep-alive-count",
            "[method]tcp-socket.hop-limit",
            "[method]tcp-socket.set-hop-limit",
            "[method]tcp-socket.receive-buffer-size",
            "[method]tcp-socket.set-receive-buffer-size",
            "[method]tcp-socket.send-buffer-size",
            "[method]tcp-socket.set-send-buffer-size",
            "[method]tcp-socket.subscribe",
            "[method]tcp-socket.shutdown",
        ],
    },
    Refused {
        interface: "wasi:sockets/tcp-create-socket@0.2.12",
        resources: &[],
        functions: &["create-tcp-socket"],
    },
    Refused {
        interface: "wasi:sockets/udp@0.2.12",
        resources: &[
            "udp-socket",
            "incoming-datagram-stream",
            "outgoing-datagram-stream",
        ],
        functions: &[
            "[method]udp-socket.start-bind",
            "[method]udp-socket.finish-bind",
            "[method]udp-socket.stream",
            "[method]udp-socket.local-address",
            "[method]udp-socket.remote-address",
            "[method]udp-socket.address-family",
            "[method]udp-socket.unicast-hop-limit",
            "[method]udp-socket.set-unicast-hop-limit",
            "[method]udp-socket.receive-buffer-size",
            "[method]udp-socket.set-receive-buffer-size",
            "[method]udp-socket.send-buffer-size",
            "[method]udp-socket.set-send-buffer-size",
            "[method]udp-socket.subscribe",
            "[method]incoming-datagram-stream.receive",
            "[method]incoming-datagram-stream.subscribe",
            "[method]outgoing-datagram-stream.check-send",
            "[method]outgoing-datagram-stream.send",
            "[method]outgoing-datagram-stream.subscribe",
        ],
    },
    Refused {
        interface: "wasi:sockets/udp-create-socket@0.2.12",
        resources: &[],
        functions: &["create-udp-socket"],
    },
];

/// Adds every function of the refused interfaces.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    for refused in &INTERFACES {
        let mut instance = linker.instance(refused.interface)?;
        for resource in refused.resources {
            instance.resource(resource, ResourceType::host::<Absent>(), |_, _| Ok(()))?;
        }
        for function in refused.functions {
            instance.func_new(function, |store, function, arguments, results| {
                drop_handles(store, arguments)?;
                refuse(&function, results)
            })?;
        }
    }
    for other in &OTHERS {
        let Some(reason) = other.refusal else {
            continue;
        };
        let mut instance = linker.instance(other.name)?;
        for resource in other.resources {
            instance.resource(resource, ResourceType::host::<Absent>(), |_, _| Ok(()))?;
        }
        for name in other.functions {
            instance.func_new(name, move |store, function, arguments, results| {
                drop_handles(store, arguments)?;
                refuse_with_reason(
                    format!("{} is refused: {reason}", other.name),
                    &function,
                    results,
                )
            })?;
        }
    }
    linker.instance("wasi:sockets/network@0.2.12")?.resource(
        "network",
        ResourceType::host::<Network>(),
        |mut store, network| {
            let network = Resource::<Network>::new_own(network);
            store.data_mut().table.delete(network)?;
            Ok(())
        },
    )?;
    linker
        .instance("wasi:sockets/instance-network@0.2.12")?
        .func_wrap("instance-network", |mut store: Caller<'_, P>, (): ()| {
            Ok((store.data_mut().table.push(Network)?,))
        })?;
    Ok(())
}

/// Drops the handles among the arguments, which the dynamic interface leaves to its user.
fn drop_handles<P: Platform>(mut store: Caller<'_, P>, arguments: &[Val]) -> Result<()> {
    for argument in arguments {
        if let Val::Resource(handle) = argument {
            handle.resource_drop(&mut store)?;
        }
    }
    Ok(())
}

/// Returns the emptiest value that the function's type has.
fn refuse(function: &ComponentFunc, results: &mut [Val]) -> Result<()> {
    for (result, ty) in results.iter_mut().zip(function.results()) {
        *result = match ty {
            Type::Result(_) => {
                Val::Result(Err(Some(Box::new(Val::Enum("access-denied".to_string())))))
            }
            Type::Option(_) => Val::Option(None),
            Type::List(_) => Val::List(Vec::new()),
            _ => wasmtime::bail!("functions have no sockets"),
        };
    }
    Ok(())
}

/// Returns the reason in an error that takes a text, if the function's type has one.
///
/// # Errors
/// Returns a trap with the reason otherwise.
fn refuse_with_reason(reason: String, function: &ComponentFunc, results: &mut [Val]) -> Result<()> {
    if let [result] = results
        && let Some(Type::Result(ty)) = function.results().next()
        && let Some(case) = case_with_text(&ty)
    {
        let error = Val::Variant(case, Some(Box::new(Val::String(reason))));
        *result = Val::Result(Err(Some(Box::new(error))));
        return Ok(());
    }
    wasmtime::bail!("{reason}")
}

/// Returns the case of a result's error that can carry a reason, if there is one.
fn case_with_text(ty: &ResultType) -> Option<String> {
    let Type::Variant(error) = ty.err()? else {
        return None;
    };
    let has = |name: &str| {
        let mut cases = error.cases();
        cases.any(|case| case.name == name && case.ty == Some(Type::String))
    };
    let case = CASES_WITH_TEXT.into_iter().find(|name| has(name))?;
    Some(case.to_owned())
}
