//! Compiles one kernel to one function of a Cranelift module, for either back end.

use super::conditions::move_as_bytes;
use super::f16c::insert_conversions;
use super::packed::{self, PackedLanes};
use super::{CodegenOptions, analysis, asm, calls, func, row_plan, table, wide, widen};
use crate::code::{CodeImage, CodeText, FunctionInfo, HostCall, host_functions};
use crate::kernel::{Kernel, hoist_invariants};
use crate::target::{Feature, Target};
use crate::tensor::AlignedBytes;
use crate::types::DType;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{ExternalName, UserExternalName, UserFuncName};
use cranelift_codegen::{CompiledCode, Context, FinalizedMachReloc, FinalizedRelocTarget};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc};

/// Adds kernels to a module, one function each.
pub(super) struct FunctionWriter {
    ctx: Context,
    frontend: FunctionBuilderContext,
    options: CodegenOptions,
    /// The number of kernels defined so far.
    count: u32,
}

/// A kernel's code before it is added to a module.
struct KernelCode {
    /// The final bytes.
    bytes: Vec<u8>,
    /// Where widened code comes from ([`widen::Wide::origins`]); `None` if the instructions are at Cranelift's places.
    origins: Option<Vec<(u32, u32)>>,
    info: FunctionInfo,
    /// The CLIF text before Cranelift changes the function, if texts were requested.
    clif: Option<String>,
}

/// The reason why a kernel was not compiled with vectors of some width.
struct CompileError {
    reason: String,
    /// Whether the code spills more vectors than there are registers for.
    spills: bool,
}

impl From<String> for CompileError {
    fn from(reason: String) -> CompileError {
        CompileError { reason, spills: false }
    }
}

impl FunctionWriter {
    pub(super) fn new(module: &dyn Module, options: CodegenOptions) -> FunctionWriter {
        FunctionWriter {
            ctx: module.make_context(),
            frontend: FunctionBuilderContext::new(),
            options,
            count: 0,
        }
    }

    /// Defines kernel `k` in `module` as the function `symbol`, with the vector width that suits it best.
    pub(super) fn define(
        &mut self,
        k: &Kernel,
        module: &mut dyn Module,
        symbol: &str,
    ) -> Result<(FuncId, FunctionInfo), String> {
        let mut k = hoist_invariants(k);
        move_as_bytes(&mut k);
        let (shape, narrow) = choose_shape(&k, self.max_width());
        let mut code = self.compile_up_to_width(&k, module, shape)?;
        code.info.narrow = narrow;
        let id = self.add_to_module(module, symbol, &code)?;
        let compiled = self.ctx.compiled_code().ok_or("no code")?;
        code.info.code_bytes = code.bytes.len();
        if self.options.image {
            code.info.image = match &code.origins {
                // Nothing that refers to something outside is widened.
                Some(_) => Some(CodeImage {
                    bytes: code.bytes.clone(),
                    calls: vec![],
                }),
                None => code_image(code.bytes.clone(), compiled, &self.ctx, module),
            };
        }
        if let Some(clif) = code.clif.take() {
            let asm = assembly_listing(&code, compiled, is_x86(module));
            code.info.text = Some(Box::new(FunctionTexts { clif, asm }));
        }
        module.clear_context(&mut self.ctx);
        self.count += 1;
        Ok((id, code.info))
    }

    /// Compiles `k` with vectors of this width or, if that is not possible, of 16 bytes. Code that spills too many vectors is compiled
    /// again with one vector in a group.
    fn compile_up_to_width(
        &mut self,
        k: &Kernel,
        module: &mut dyn Module,
        shape: PackedLanes,
    ) -> Result<KernelCode, String> {
        let mut done = self.compile_at_width(k, module, shape);
        if matches!(done, Err(CompileError { spills: true, .. })) {
            module.clear_context(&mut self.ctx);
            done = self.compile_at_width(k, module, PackedLanes { single: true, ..shape });
        }
        let done = match done {
            Err(e) if shape.width > 16 => {
                module.clear_context(&mut self.ctx);
                let narrow = self.compile_at_width(k, module, PackedLanes { width: 16, ..shape });
                narrow.map(|mut code| {
                    code.info.refused = Some(e.reason);
                    code
                })
            }
            done => done,
        };
        done.map_err(|e| e.reason)
    }

    fn target(&self) -> Target {
        self.options.target.unwrap_or_else(Target::native)
    }

    /// Whether `k` has f16 values, and the target the instructions to convert them.
    fn converts_f16(&self, k: &Kernel, module: &dyn Module) -> bool {
        let target = self.target().has(Feature::F16c) && func::has_isa_flag(module.isa(), "has_avx");
        target && k.values.contains(&DType::F16)
    }

    /// The widest vectors that the options and the target allow, in bytes.
    fn max_width(&self) -> usize {
        self.options
            .width
            .unwrap_or(usize::MAX)
            .min(wide::widest_vectors(self.target()))
    }

    /// Compiles a kernel for vectors of this width. Fails if its code cannot be widened.
    fn compile_at_width(
        &mut self,
        k: &Kernel,
        module: &dyn Module,
        shape: PackedLanes,
    ) -> Result<KernelCode, CompileError> {
        let shape = PackedLanes {
            narrows: self.target().has(Feature::Avx512Bf16) && self.target().has(Feature::Avx512Bw),
            f16c: self.converts_f16(k, module),
            ..shape
        };
        let (ctx, isa) = (&mut self.ctx, module.isa());
        let mut table = table::ConstantTable::default();
        ctx.func.signature = func::kernel_signature(isa);
        ctx.func.name = UserFuncName::user(0, self.count);
        ctx.set_disasm(self.options.text && !is_x86(module));
        let (func, frontend) = (&mut ctx.func, &mut self.frontend);
        func::define_function(k, isa, shape, func, frontend, &mut table, self.options.text);
        let clif = self.options.text.then(|| clif_text(ctx));
        let (bytes, origins) = compile_code(ctx, module, shape, analysis::may_stream(k))?;
        let info = FunctionInfo {
            constants: AlignedBytes::from_slice(table.bytes()),
            width: shape.width,
            scratch: row_plan::scratch_bytes(k),
            code_bytes: 0,
            refused: None,
            narrow: None,
            text: None,
            image: None,
        };
        Ok(KernelCode {
            bytes,
            origins,
            info,
            clif,
        })
    }

    /// Adds the code to the module.
    fn add_to_module(&mut self, module: &mut dyn Module, symbol: &str, code: &KernelCode) -> Result<FuncId, String> {
        let signature = &self.ctx.func.signature;
        let declared = module.declare_function(symbol, Linkage::Export, signature);
        let id = declared.map_err(|e| e.to_string())?;
        let (mut alignment, mut relocations) = (64, vec![]);
        if code.origins.is_none() {
            import_host_functions(&mut self.ctx, module)?;
            let buffer = &self.ctx.compiled_code().ok_or("no code")?.buffer;
            alignment = u64::from(buffer.alignment);
            let all = buffer.relocs().iter();
            relocations.extend(all.map(|r| ModuleReloc::from_mach_reloc(r, &self.ctx.func, id)));
        }
        module
            .define_function_bytes(id, alignment, &code.bytes, &relocations)
            .map_err(|e| e.to_string())?;
        Ok(id)
    }
}

/// The lanes and the vector width of `k`, at most `most`, and the reason if the width is less.
fn choose_shape(k: &Kernel, most: usize) -> (PackedLanes, Option<String>) {
    if let Some(p) = packed::choose_packing(k, most) {
        return (p, None);
    }
    let (width, narrow) = wide::choose_width(k, most);
    let shape = PackedLanes {
        lane: 4,
        width,
        narrows: false,
        f16c: false,
        single: false,
    };
    (shape, narrow)
}

/// The code as it can be written to a file; `None` if it refers to something other than host functions, or in another way than by an
/// address of eight bytes.
fn code_image(bytes: Vec<u8>, code: &CompiledCode, ctx: &Context, module: &dyn Module) -> Option<CodeImage> {
    let call = |r: &FinalizedMachReloc| {
        let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = &r.target else {
            return None;
        };
        let name = &ctx.func.params.user_named_funcs()[*name];
        let id = FuncId::from_u32(name.index);
        let symbol = module.declarations().get_function_decl(id).name.clone()?;
        (r.kind == Reloc::Abs8 && r.addend == 0 && name.namespace == 0).then_some(HostCall { at: r.offset, symbol })
    };
    Some(CodeImage {
        bytes,
        calls: code.buffer.relocs().iter().map(call).collect::<Option<_>>()?,
    })
}

fn is_x86(module: &dyn Module) -> bool {
    module.isa().name() == "x64"
}

/// The final bytes of code, and where they come from if it was widened.
type FinalCode = (Vec<u8>, Option<Vec<(u32, u32)>>);

/// Compiles the function in `ctx` and widens it to vectors of the width of `shape`.
fn compile_code(
    ctx: &mut Context,
    module: &dyn Module,
    shape: PackedLanes,
    may_stream: bool,
) -> Result<FinalCode, CompileError> {
    ctx.compile(module.isa(), &mut Default::default())
        .map_err(|e| format!("{:?}", e.inner))?;
    let code = ctx.compiled_code().ok_or_else(|| "no code".to_string())?;
    let mut bytes = code.code_buffer().to_vec();
    if shape.f16c {
        insert_conversions(&mut bytes)?;
    }
    if shape.width == 16 {
        return Ok((bytes, None));
    }
    if !code.buffer.relocs().is_empty() {
        return Err("the code has external references (calls or relocations)"
            .to_string()
            .into());
    }
    let wide = widen::widen(&bytes, shape.width, may_stream).map_err(|e| CompileError {
        spills: matches!(e, widen::Reject::Spills(_)),
        reason: e.to_string(),
    })?;
    Ok((wide.code, Some(wide.origins)))
}

/// Declares in the module the host functions that the function calls, and renumbers its references to match.
fn import_host_functions(ctx: &mut Context, module: &mut dyn Module) -> Result<(), String> {
    let imports: Vec<_> = ctx
        .func
        .dfg
        .ext_funcs
        .values()
        .filter_map(|f| {
            Some((
                calls::host_function_of(&f.name, &ctx.func)?,
                f.name.clone(),
                f.signature,
            ))
        })
        .collect();
    for (n, name, signature) in imports {
        let symbol = &host_functions()[n].symbol;
        let signature = &ctx.func.dfg.signatures[signature];
        let declared = module.declare_function(symbol, Linkage::Import, signature);
        let id = declared.map_err(|e| e.to_string())?;
        if let ExternalName::User(r) = name {
            let resolved = UserExternalName::new(0, id.as_u32());
            ctx.func.params.reset_user_func_name(r, resolved);
        }
    }
    Ok(())
}

/// A function's code as text.
struct FunctionTexts {
    clif: String,
    asm: asm::Listing,
}

impl CodeText for FunctionTexts {
    fn clif(&self) -> &str {
        &self.clif
    }

    fn asm(&self, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String {
        self.asm.render_text(k, mark, place)
    }
}

/// The listing of a function's machine code.
fn assembly_listing(code: &KernelCode, compiled: &CompiledCode, x86: bool) -> asm::Listing {
    if !x86 {
        return asm::Listing::of_text(compiled.vcode.as_deref().unwrap_or_default());
    }
    let places = compiled.buffer.get_srclocs_sorted().iter();
    let pieces = asm::collect_pieces(places.map(|p| (p.start, p.end, p.loc)));
    asm::Listing::of_x86(&code.bytes, code.origins.as_deref(), &pieces)
}

/// A function's CLIF text.
fn clif_text(ctx: &Context) -> String {
    let mut plain = ctx.func.clone();
    // Only the assembly listing needs source locations.
    plain.srclocs.clear();
    plain.display().to_string()
}
