//! Valid functions that keep a compiler busy.

use wasm_encoder::{
    CodeSection, ExportKind, ExportSection, Function, FunctionSection, Instruction, MemorySection,
    MemoryType, Module, TypeSection, ValType,
};

/// A command of `functions` functions of `steps` steps each. Every step depends on the ones before,
/// so that none can be optimised away.
pub fn laborious(functions: u32, steps: u32) -> Vec<u8> {
    const LOCALS: u32 = 64;
    let mut types = TypeSection::new();
    types.ty().function([], []);
    types.ty().function([ValType::I64], [ValType::I64]);
    let mut declared = FunctionSection::new();
    let mut code = CodeSection::new();

    declared.function(0);
    let mut start = Function::new([]);
    start.instruction(&Instruction::End);
    code.function(&start);

    for _ in 0..functions {
        declared.function(1);
        let mut body = Function::new([(LOCALS, ValType::I64)]);
        for step in 0..steps {
            // The locals stay alive across branches, which makes register allocation expensive.
            body.instruction(&Instruction::LocalGet(step % LOCALS))
                .instruction(&Instruction::LocalGet((step * 7 + 3) % LOCALS))
                .instruction(&Instruction::I64Const(i64::from(step) | 1))
                .instruction(&Instruction::I64Mul)
                .instruction(&Instruction::I64Xor)
                .instruction(&Instruction::LocalSet((step * 5 + 1) % LOCALS));
            if step % 4 == 0 {
                body.instruction(&Instruction::Block(wasm_encoder::BlockType::Empty))
                    .instruction(&Instruction::LocalGet((step * 3) % LOCALS))
                    .instruction(&Instruction::I64Eqz)
                    .instruction(&Instruction::BrIf(0))
                    .instruction(&Instruction::LocalGet((step * 11) % LOCALS))
                    .instruction(&Instruction::LocalSet((step * 13) % LOCALS))
                    .instruction(&Instruction::End);
            }
        }
        body.instruction(&Instruction::LocalGet(1))
            .instruction(&Instruction::End);
        code.function(&body);
    }

    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports
        .export("memory", ExportKind::Memory, 0)
        .export("_start", ExportKind::Func, 0);

    let mut module = Module::new();
    module
        .section(&types)
        .section(&declared)
        .section(&memories)
        .section(&exports)
        .section(&code);
    module.finish()
}
