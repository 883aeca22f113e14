//! Sends the state of an initialised function, so that its module can be rewritten to start in that
//! state ([`faasw_abi::state`]).
//!
//! The code has been instrumented: a module exports its state directly. The modules of a component
//! export it through functions of an instance. Each of these is called once; one that returns a
//! memory grows that memory by a page, behind the returned data.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::memory_map::PAGE;
use faasw_abi::state::{
    self, COMPONENT_INSTANCE, MODULE_PREFIX, REASON_MAX, RUN_MAX, STATUS_REFUSED, STATUS_STATE,
    Value, ValueType,
};
use faasw_abi::wire::ResponseHead;
use wasmtime::component::types::{ComponentItem, Type};
use wasmtime::component::{self, ComponentNamedList, Lift, WasmList};
use wasmtime::{Extern, Global, Memory, Result, Store, StoreContext, Val};

use super::{Instance, Ready};
use crate::failure::Failure;
use crate::platform::{Platform, send_whole};
use crate::state::{State, Stdio};

/// Bytes that one page beyond the function's limit takes, for each of its memories.
const SPARE: usize = 64 << 10;

/// A part of a function's state.
enum StatePart {
    Global(Value),
    OfModule(Memory),
    OfComponent(WasmList<u8>),
}

impl StatePart {
    /// Returns the bytes of a memory.
    fn bytes<'a, T: 'static>(&self, store: impl Into<StoreContext<'a, T>>) -> &'a [u8] {
        match self {
            Self::Global(_) => &[],
            Self::OfModule(memory) => memory.data(store),
            Self::OfComponent(list) => list.as_le_slice(store),
        }
    }
}

impl<P: Platform> Ready<P> {
    /// Answers a request with the function's state, or with the reason why the state is incomplete.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the platform refuses the answer.
    pub(super) fn send_state(&mut self) -> Result<(), Failure> {
        let parts = match self.parts() {
            Ok(parts) => parts,
            Err(why) => {
                let mut reason = why.to_string();
                reason.truncate(reason.floor_char_boundary(REASON_MAX));
                self.begin(STATUS_REFUSED)?;
                self.send(reason.as_bytes());
                return self.finish();
            }
        };
        self.begin(STATUS_STATE)?;
        for (name, part) in &parts {
            match part {
                StatePart::Global(value) => self.send(&state::global(name, *value)),
                memory => self.send_memory(name, memory),
            }
        }
        self.send(&state::end());
        self.finish()
    }

    /// Returns each part of the state with its name.
    ///
    /// # Errors
    /// Returns the reason why the parts are not the complete state.
    fn parts(&mut self) -> Result<Vec<(String, StatePart)>> {
        // State that the host keeps for the function is not in its memories.
        let state = self.store.data();
        if !state.descriptors.are_untouched() {
            wasmtime::bail!("it closed or moved a file descriptor during its initialisation");
        }
        if state
            .files
            .as_ref()
            .is_some_and(|files| !files.are_untouched())
        {
            wasmtime::bail!("it changed its files during its initialisation");
        }
        if matches!(&state.stdio, Stdio::Command(output) if !output.is_empty()) {
            wasmtime::bail!("it began its response during its initialisation");
        }
        match self.instance {
            Instance::Module(instance) => self.parts_of_module(instance),
            Instance::Component(instance) => self.parts_of_component(instance),
        }
    }

    fn parts_of_module(
        &mut self,
        instance: wasmtime::Instance,
    ) -> Result<Vec<(String, StatePart)>> {
        let exports: Vec<(String, Extern)> = instance
            .exports(&mut self.store)
            .filter(|export| export.name().starts_with(MODULE_PREFIX))
            .map(|export| (export.name().to_string(), export.into_extern()))
            .collect();
        let mut parts = Vec::new();
        for (name, export) in exports {
            let part = match export {
                Extern::Global(global) => StatePart::Global(value(global, &mut self.store)?),
                Extern::Memory(memory) => StatePart::OfModule(memory),
                _ => wasmtime::bail!("its code exports {name}, which is not state"),
            };
            parts.push((name, part));
        }
        Ok(parts)
    }

    fn parts_of_component(
        &mut self,
        instance: component::Instance,
    ) -> Result<Vec<(String, StatePart)>> {
        let held = self.store.data_mut().table.iter_mut().count();
        if held > 0 {
            wasmtime::bail!(
                "it still holds {held} resources of the host after its initialisation, such as an \
                 output stream; they are not part of a component's memory"
            );
        }
        let accessors = self.accessors(instance)?;
        // An accessor returns its whole memory in one call, whatever the size.
        self.store.set_hostcall_fuel(usize::MAX);
        let store = &mut self.store;
        let memories = accessors.iter().filter(|(_, ty)| is_memory(ty)).count();
        store.data_mut().memory.allow_more(SPARE * memories);
        let of = instance.get_export_index(&mut *store, None, COMPONENT_INSTANCE);
        let of = of.as_ref();
        let mut parts = Vec::new();
        for (name, ty) in accessors {
            let part = match ty {
                Type::List(_) => {
                    let (list,) = call(store, instance, of, &name)?;
                    StatePart::OfComponent(list)
                }
                Type::S32 => {
                    let (value,): (i32,) = call(store, instance, of, &name)?;
                    global(ValueType::I32, value.cast_unsigned())
                }
                Type::S64 => {
                    let (value,): (i64,) = call(store, instance, of, &name)?;
                    global(ValueType::I64, value.cast_unsigned())
                }
                Type::Float32 => {
                    let (value,): (f32,) = call(store, instance, of, &name)?;
                    global(ValueType::F32, value.to_bits())
                }
                Type::Float64 => {
                    let (value,): (f64,) = call(store, instance, of, &name)?;
                    global(ValueType::F64, value.to_bits())
                }
                _ => wasmtime::bail!("its code exports {name}, which is not state"),
            };
            parts.push((name, part));
        }
        Ok(parts)
    }

    /// Returns the functions that return a component's state, with their result types.
    fn accessors(&mut self, instance: component::Instance) -> Result<Vec<(String, Type)>> {
        let engine = self.store.engine().clone();
        let ty = instance
            .instance_pre(&self.store)
            .component()
            .component_type();
        let Some(ComponentItem::ComponentInstance(access)) = ty
            .get_export(&engine, COMPONENT_INSTANCE)
            .map(|export| export.ty)
        else {
            wasmtime::bail!("its code is not instrumented");
        };
        let mut accessors = Vec::new();
        for (name, export) in access.exports(&engine) {
            let ty = match export.ty {
                ComponentItem::ComponentFunc(function) => function.results().next(),
                _ => None,
            };
            match ty {
                Some(ty) => accessors.push((name.to_string(), ty)),
                None => wasmtime::bail!("its code exports {name}, which is not state"),
            }
        }
        Ok(accessors)
    }

    fn send_memory(&mut self, name: &str, memory: &StatePart) {
        let bytes = memory.bytes(&self.store).len();
        self.send(&state::memory(name, bytes as u64));
        let mut run = vec![0; RUN_MAX];
        let mut at = 0;
        while at < bytes {
            let all = memory.bytes(&self.store);
            let Some((start, end)) = next_run(all, at) else {
                break;
            };
            let length = end - start;
            let (Some(from), Some(to)) = (all.get(start..end), run.get_mut(..length)) else {
                break;
            };
            to.copy_from_slice(from);
            self.send(&state::run(start as u64, length as u32));
            self.send(run.get(..length).unwrap_or_default());
            at = end;
        }
        self.send(&state::run(0, 0));
    }

    fn begin(&mut self, status: u16) -> Result<(), Failure> {
        let head = ResponseHead {
            status,
            headers: Vec::new(),
        };
        self.platform_mut()
            .send_head(Channel::INVOCATION, &head.encode(), false)
            .map_err(Failure::refused)
    }

    fn send(&mut self, bytes: &[u8]) {
        send_whole(self.platform_mut(), Channel::INVOCATION, bytes);
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let platform = self.platform_mut();
        platform
            .finish(Channel::INVOCATION, &[])
            .map_err(Failure::refused)
    }
}

/// Returns the next pages from `at` on that are not all zero: at most [`RUN_MAX`] bytes of them.
fn next_run(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    const PAGE_BYTES: usize = PAGE as usize;
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let rest = bytes.get(at..)?;
    let mut pages = rest.chunks(PAGE_BYTES);
    let start = at + pages.position(|page| !is_zero(page))? * PAGE_BYTES;
    let run = bytes
        .get(start..)?
        .chunks(PAGE_BYTES)
        .take(RUN_MAX / PAGE_BYTES);
    let length: usize = run.take_while(|page| !is_zero(page)).map(<[u8]>::len).sum();
    Some((start, start + length))
}

fn value<P: Platform>(global: Global, store: &mut Store<State<P>>) -> Result<Value> {
    let (ty, bits) = match global.get(store) {
        Val::I32(value) => (ValueType::I32, value.cast_unsigned().into()),
        Val::I64(value) => (ValueType::I64, value.cast_unsigned().into()),
        Val::F32(bits) => (ValueType::F32, bits.into()),
        Val::F64(bits) => (ValueType::F64, bits.into()),
        Val::V128(value) => (ValueType::V128, value.as_u128()),
        _ => wasmtime::bail!("one of its globals is a reference"),
    };
    Ok(Value { ty, bits })
}

fn global(ty: ValueType, bits: impl Into<u128>) -> StatePart {
    let bits = bits.into();
    StatePart::Global(Value { ty, bits })
}

fn is_memory(ty: &Type) -> bool {
    matches!(ty, Type::List(_))
}

/// Calls a function of `interface`.
fn call<P, Results>(
    store: &mut Store<State<P>>,
    instance: component::Instance,
    interface: Option<&component::ComponentExportIndex>,
    name: &str,
) -> Result<Results>
where
    P: Platform,
    Results: ComponentNamedList + Lift + 'static,
{
    match instance.get_export_index(&mut *store, interface, name) {
        Some(index) => instance
            .get_typed_func::<(), Results>(&mut *store, index)?
            .call(store, ()),
        None => wasmtime::bail!("it does not export {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_pages_that_are_not_zero() {
        let mut bytes = vec![0; 10 * 4096 + 100];
        assert_eq!(next_run(&bytes, 0), None);
        for at in [4095, 3 * 4096, 4 * 4096 + 7, 10 * 4096 + 99] {
            bytes[at] = 1;
        }
        assert_eq!(next_run(&bytes, 0), Some((0, 4096)));
        assert_eq!(next_run(&bytes, 4096), Some((3 * 4096, 5 * 4096)));
        let last = (10 * 4096, 10 * 4096 + 100);
        assert_eq!(next_run(&bytes, 5 * 4096), Some(last));
        assert_eq!(next_run(&bytes, bytes.len()), None);
        bytes.fill(1);
        bytes.resize(100 << 10, 1);
        assert_eq!(next_run(&bytes, 0), Some((0, RUN_MAX)));
    }
}
