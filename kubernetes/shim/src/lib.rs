//! The shim by which containerd runs faasw, `containerd-shim-faasw-v1` (docs/decisions/0031).
//!
//! It is no server. containerd starts it for a pod; it looks whether this host can have microVMs
//! ([`host`]) and *becomes* `containerd-shim-runc-v2` ([`start`]), in whose `PATH` it is the first
//! `runc`. So each command for runc comes by here ([`runc`]): for a container whose image is a
//! module, `create` gets another specification ([`spec`]), in which a node of faasw is what runs;
//! everything else is handed to the real runc as it came.
//!
//! | module | |
//! | --- | --- |
//! | [`installation`] | the folder that it is installed in, and programs of others that it becomes |
//! | [`host`] | what a host has to have |
//! | [`groups`] | its control groups, and a container's own |
//! | [`start`] | what containerd calls |
//! | [`command`], [`runc`] | what runc's shim calls, as the command line says it; what comes of it |
//! | [`bundle`] | a container's `config.json`, read and replaced |
//! | [`containerd`], [`grpc`], [`protobuf`] | what containerd is asked: which image, and blobs of it |
//! | [`image`] | manifests, which strangers have made |
//! | [`module`] | the module of a container, if it is one's |
//! | [`options`] | what artifact and pod say, as options of `faasw pod` |
//! | [`spec`], [`seccomp`] | the specification of the node's container |
//! | [`sharing`] | what this host has made of a function before, and what it is to make |
//! | [`state`] | what runc keeps of containers |

pub mod bundle;
pub mod command;
pub mod containerd;
pub mod error;
pub mod groups;
pub mod grpc;
pub mod host;
pub mod image;
pub mod installation;
pub mod module;
pub mod options;
pub mod protobuf;
pub mod runc;
pub mod seccomp;
pub mod sharing;
pub mod spec;
pub mod start;
pub mod state;
