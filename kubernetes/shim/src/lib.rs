//! The shim by which containerd runs faasw, `containerd-shim-faasw-v1` (docs/decisions/0031).
//!
//! The shim is not a server. containerd starts it for a pod. It checks whether this host can run
//! microVMs ([`host`]) and *becomes* `containerd-shim-runc-v2` ([`start`]), in whose `PATH` it is
//! the first `runc`. So each runc command passes through this program ([`runc`]). For a container
//! whose image is a module, `create` gets another specification ([`spec`]), which runs a node of
//! faasw. Every other command is passed on to the real runc unchanged.
//!
//! | module | |
//! | --- | --- |
//! | [`installation`] | the installation folder, and the search for external programs |
//! | [`host`] | prerequisites of the host |
//! | [`groups`] | the host's control groups, and delegation of a container's group |
//! | [`start`] | containerd's calls of the shim |
//! | [`command`], [`runc`] | commands of runc's shim to runc: parsing and handling |
//! | [`bundle`] | a container's `config.json`, read and replaced |
//! | [`containerd`], [`grpc`], [`protobuf`] | requests to containerd: a container's image, blobs |
//! | [`image`] | manifests, which are untrusted |
//! | [`module`] | the module of a container, if the container is a function |
//! | [`options`] | settings of artifact and pod, as options of `faasw pod` |
//! | [`spec`], [`seccomp`] | the specification of the node's container |
//! | [`sharing`] | func-images that pods of this host share |
//! | [`state`] | runc's state of containers |

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
