/* fxc: the optimizing compiler for torch.fx graphs. docs/c.md has the examples; cbindgen writes this file of capi/src. */

#ifndef FXC_H
#define FXC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The status of a call.
 */
typedef enum fxc_status {
  /*
   Success.
   */
  FXC_OK = 0,
  /*
   The model, the inputs or a file are invalid: see fxc_last_error.
   */
  FXC_ERROR = 1,
  /*
   An invalid argument: a pointer must not be NULL, a text is not UTF-8, or a number is out of range.
   */
  FXC_INVALID_ARGUMENT = 2,
  /*
   A cancel token cancelled the call.
   */
  FXC_CANCELLED = 3,
  /*
   An internal error of fxc. Do not use the objects of the call any more.
   */
  FXC_PANIC = 4,
} fxc_status;

/*
 A token that cancels compilations and calls.
 */
typedef struct fxc_cancel_token fxc_cancel_token;

/*
 A model's code. Any number of threads may call it at the same time.
 */
typedef struct fxc_compiled fxc_compiled;

/*
 A model.
 */
typedef struct fxc_model fxc_model;

/*
 Compile options.
 */
typedef struct fxc_options fxc_options;

/*
 Tensors that own their memory: later calls do not change them.
 */
typedef struct fxc_outputs fxc_outputs;

/*
 A compiled model that keeps its state: each call starts with the buffers that the previous call left. Only one
 thread at a time may use it.
 */
typedef struct fxc_session fxc_session;

/*
 An element type: FXC_F32, FXC_I64, ….
 */
typedef uint32_t fxc_dtype;

/*
 A tensor that fxc reads.
 */
typedef struct fxc_tensor {
  /*
   The first element. Dense, aligned elements are read in place; others are copied first.
   */
  const void *data;
  /*
   Element type.
   */
  fxc_dtype dtype;
  /*
   The number of dimensions.
   */
  size_t rank;
  /*
   The sizes, outermost first.
   */
  const size_t *shape;
  /*
   The strides in elements, which may be negative; NULL for row-major elements without gaps.
   */
  const ptrdiff_t *strides;
  /*
   The name of the input; NULL for the next input by position.
   */
  const char *name;
} fxc_tensor;

/*
 A tensor that fxc writes, row-major without gaps.
 */
typedef struct fxc_buffer {
  /*
   The first element, aligned to its size.
   */
  void *data;
  /*
   Element type.
   */
  fxc_dtype dtype;
  /*
   The number of dimensions.
   */
  size_t rank;
  /*
   The sizes, outermost first.
   */
  const size_t *shape;
} fxc_buffer;

/*
 An input or a result of a model. The model owns the texts and the shape, which are valid until it is freed.
 */
typedef struct fxc_value_info {
  /*
   Its name.
   */
  const char *name;
  /*
   Its type in FXIR's notation: "f32[N, 3]"; empty if it is unknown.
   */
  const char *type_text;
  /*
   Element type; FXC_UNKNOWN if it is unknown, or not a tensor.
   */
  fxc_dtype dtype;
  /*
   The number of dimensions; -1 if it is unknown, or not a tensor.
   */
  int64_t rank;
  /*
   The sizes; -1 for a symbolic or unknown size.
   */
  const int64_t *shape;
} fxc_value_info;

/*
 Unknown before a call. No tensor has this type.
 */
#define FXC_UNKNOWN 0

/*
 IEEE double.
 */
#define FXC_F64 1

/*
 IEEE float.
 */
#define FXC_F32 2

/*
 IEEE half.
 */
#define FXC_F16 3

/*
 bfloat16.
 */
#define FXC_BF16 4

/*
 64-bit integer.
 */
#define FXC_I64 5

/*
 32-bit integer.
 */
#define FXC_I32 6

/*
 16-bit integer.
 */
#define FXC_I16 7

/*
 8-bit integer.
 */
#define FXC_I8 8

/*
 Unsigned 8-bit integer.
 */
#define FXC_U8 9

/*
 A byte that is 0 or 1.
 */
#define FXC_BOOL 10

/*
 Unsigned 16-bit integer.
 */
#define FXC_U16 11

/*
 Unsigned 32-bit integer.
 */
#define FXC_U32 12

/*
 Unsigned 64-bit integer.
 */
#define FXC_U64 13

/*
 8-bit float with 4 bits of exponent.
 */
#define FXC_F8E4M3FN 14

/*
 8-bit float with 5 bits of exponent.
 */
#define FXC_F8E5M2 15

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Calls the model on `input_count` tensors. Each call starts with the initial values of buffers; see
 fxc_compiled_session to keep their values.

 # Safety
 `compiled` is a compiled model; `inputs` points to `input_count` tensors whose memory is not written during the
 call; `out` is valid for writing.
 */
enum fxc_status fxc_compiled_run(const struct fxc_compiled *compiled,
                                 const struct fxc_tensor *inputs,
                                 size_t input_count,
                                 struct fxc_outputs **out);

/*
 Calls the model and writes the tensors of its result, in flattened order, to the caller's memory, which must have
 their types.

 # Safety
 `compiled` is a compiled model; `inputs` points to `input_count` tensors whose memory is not written during the
 call; `outputs` points to `output_count` buffers that overlap neither the inputs nor each other and are not used
 by other threads during the call.
 */
enum fxc_status fxc_compiled_run_into(const struct fxc_compiled *compiled,
                                      const struct fxc_tensor *inputs,
                                      size_t input_count,
                                      const struct fxc_buffer *outputs,
                                      size_t output_count);

/*
 Creates a session: the compiled model with separate values of the buffers that calls update. The compiled model
 may be freed afterwards.

 # Safety
 `compiled` is a compiled model; `out` is valid for writing.
 */
enum fxc_status fxc_compiled_session(const struct fxc_compiled *compiled,
                                     struct fxc_session **out);

/*
 Frees a compiled model.

 # Safety
 `compiled` is NULL, or a compiled model that is no longer used.
 */
void fxc_compiled_free(struct fxc_compiled *compiled);

/*
 Reads a model from a file: a .pt2 archive of torch.export, FXIR, or a graph printed by torch. Weights are mapped,
 not read.

 # Safety
 `path` is a NUL-terminated text; `out` is valid for writing.
 */
enum fxc_status fxc_model_open(const char *path,
                               struct fxc_model **out);

/*
 Reads a model from a file as `fxc_model_open` does. Of the options, `fxc_options_set_allow_code`, `fxc_options_set_cache`,
 `fxc_options_allow_path` and the limits apply.

 # Safety
 `path` is a NUL-terminated text; `options` is NULL for the default options, or options; `out` is valid for
 writing.
 */
enum fxc_status fxc_model_open_with(const char *path,
                                    const struct fxc_options *options,
                                    struct fxc_model **out);

/*
 Writes the model with its code to a file (`model.fxc`), which every function that opens a model accepts. The
 options determine the sizes and processors to compile for.

 # Safety
 `model` is a model; `path` is a NUL-terminated text; `options` is NULL for the default options, or options.
 */
enum fxc_status fxc_model_save_compiled(const struct fxc_model *model,
                                        const char *path,
                                        const struct fxc_options *options);

/*
 Reads a model from a text of `len` bytes: FXIR, or a graph printed by torch.

 # Safety
 `text` points to `len` bytes; `out` is valid for writing.
 */
enum fxc_status fxc_model_from_text(const char *text, size_t len, struct fxc_model **out);

/*
 Reads a model from a text as `fxc_model_from_text` does. Of the options, `fxc_options_allow_path` and the limits
 apply.

 # Safety
 `text` points to `len` bytes; `options` is NULL for the default options, or options; `out` is valid for
 writing.
 */
enum fxc_status fxc_model_from_text_with(const char *text,
                                         size_t len,
                                         const struct fxc_options *options,
                                         struct fxc_model **out);

/*
 Reads a model from the content of a file: a .pt2 archive, FXIR, or a graph printed by torch. The bytes are only needed during the call.
 Compiled models are only read from files. Of the options, `fxc_options_allow_path` and the limits apply.

 # Safety
 `bytes` points to `len` bytes; `options` is NULL for the default options, or options; `out` is valid for writing.
 */
enum fxc_status fxc_model_from_bytes(const uint8_t *bytes,
                                     size_t len,
                                     const struct fxc_options *options,
                                     struct fxc_model **out);

/*
 The number of inputs of the model.

 # Safety
 `model` is a model.
 */
size_t fxc_model_input_count(const struct fxc_model *model);

/*
 Input `index` of the model.

 # Safety
 `model` is a model; `out` is valid for writing.
 */
enum fxc_status fxc_model_input(const struct fxc_model *model, size_t index, struct fxc_value_info *out);

/*
 The number of tensors, numbers and texts in the model's result; 0 and a last error if the graph has errors.

 # Safety
 `model` is a model that no other thread uses during the call.
 */
size_t fxc_model_output_count(struct fxc_model *model);

/*
 Item `index` of the model's result.

 # Safety
 `model` is a model that no other thread uses during the call; `out` is valid for writing.
 */
enum fxc_status fxc_model_output(struct fxc_model *model, size_t index, struct fxc_value_info *out);

/*
 Compiles the model; `options` may be NULL. The model may be freed afterwards.

 # Safety
 `model` is a model; `options` are options or NULL; `out` is valid for writing.
 */
enum fxc_status fxc_model_compile(const struct fxc_model *model,
                                  const struct fxc_options *options,
                                  struct fxc_compiled **out);

/*
 Frees a model.

 # Safety
 `model` is NULL, or a model that is no longer used.
 */
void fxc_model_free(struct fxc_model *model);

/*
 Creates the default options.
 */
struct fxc_options *fxc_options_new(void);

/*
 Sets the number of threads for a call, including the caller's; 0, the default, means one per processor.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_threads(struct fxc_options *options, size_t threads);

/*
 Sets whether convolutions are computed as sums of products, without algorithms that round differently (Winograd).

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_exact(struct fxc_options *options,
                                      bool exact);

/*
 Sets what f32 products and convolutions multiply: "f32", the default, or "bf16" for operands that are rounded, with f32 sums.

 # Safety
 `options` are options that no other thread uses during the call; `name` is a NUL-terminated text.
 */
enum fxc_status fxc_options_set_precision(struct fxc_options *options,
                                          const char *name);

/*
 Sets the memory that fxc may hold in this process while it reads, compiles or calls the model, in bytes. Work that needs more fails
 with E0509. The default is what the machine has available.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_max_memory(struct fxc_options *options,
                                           size_t bytes);

/*
 Sets the number of nodes that the model's graphs may have after inlining, with the items of nested values; 1000000 by default. A larger
 model fails with E0114.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_max_nodes(struct fxc_options *options,
                                          size_t nodes);

/*
 Sets the seconds that reading, compiling or a call may take; any number by default. The time is checked between passes, nodes and
 steps: work that takes longer fails with E0513 at the next of them.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_max_time(struct fxc_options *options,
                                         double seconds);

/*
 Sets a symbolic size. Calls with another size fail.

 # Safety
 `options` are options that no other thread uses during the call; `name` is a NUL-terminated text.
 */
enum fxc_status fxc_options_set_dim(struct fxc_options *options, const char *name, int64_t size);

/*
 Adds a list of sizes to compile for before the first call. `names` are symbolic sizes, separated by commas, all of
 which take each of the `count` sizes; `x[0]` names a dimension of an input. Several lists are combined.

 # Safety
 `options` are options that no other thread uses during the call; `names` is a NUL-terminated text; `sizes` points
 to `count` sizes.
 */
enum fxc_status fxc_options_add_sizes(struct fxc_options *options,
                                      const char *names,
                                      const int64_t *sizes,
                                      size_t count);

/*
 Adds a processor that `fxc_model_save_compiled` compiles for, instead of the machine's: "x86-64-v3".

 # Safety
 `options` are options that no other thread uses during the call; `target` is a NUL-terminated text.
 */
enum fxc_status fxc_options_add_target(struct fxc_options *options, const char *target);

/*
 Sets whether `fxc_model_save_compiled` leaves out the graphs and their weights. Such a file only runs, and only
 where its code fits.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_code_only(struct fxc_options *options,
                                          bool code_only);

/*
 Sets whether `fxc_model_open_with` accepts compiled models (`.fxc`), which contain machine code; true by default.
 A program should not accept them if others can choose which files it opens.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_allow_code(struct fxc_options *options,
                                           bool allowed);

/*
 Accepts weights files in this folder that the text of a model names, in `fxc_model_open_with` and
 `fxc_model_from_text_with`. Otherwise they must be in the folder of the text (E0410).

 # Safety
 `options` are options that no other thread uses during the call; `folder` is a C string.
 */
enum fxc_status fxc_options_allow_path(struct fxc_options *options, const char *folder);

/*
 Sets whether a compiled model without usable code for the inputs or the machine is compiled again (true, the
 default) or is an error.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_fallback(struct fxc_options *options, bool allowed);

/*
 Sets whether code is read from and stored in the user's cache of compiled models; false by default. The option
 applies to opening models (`fxc_model_open_with`) and to compiling them. `fxc_flush_cache` waits until the code is
 written.

 # Safety
 `options` are options that no other thread uses during the call.
 */
enum fxc_status fxc_options_set_cache(struct fxc_options *options,
                                      bool enabled);

/*
 Waits until the code that calls have compiled is in the user's cache. Call it before the process ends.
 */
void fxc_flush_cache(void);

/*
 Sets a token that can cancel compilations and calls.

 # Safety
 `options` are options that no other thread uses during the call; `token` is a token.
 */
enum fxc_status fxc_options_set_cancel(struct fxc_options *options, const struct fxc_cancel_token *token);

/*
 Frees options.

 # Safety
 `options` is NULL, or options that are no longer used.
 */
void fxc_options_free(struct fxc_options *options);

/*
 Creates a token that is not cancelled.
 */
struct fxc_cancel_token *fxc_cancel_token_new(void);

/*
 Cancels the work that uses the token. Any thread may call this.

 # Safety
 `token` is a token.
 */
enum fxc_status fxc_cancel_token_cancel(const struct fxc_cancel_token *token);

/*
 Resets the token, so that later work runs again.

 # Safety
 `token` is a token.
 */
enum fxc_status fxc_cancel_token_reset(const struct fxc_cancel_token *token);

/*
 Frees a token. Options that use it are not affected.

 # Safety
 `token` is NULL, or a token that is no longer used.
 */
void fxc_cancel_token_free(struct fxc_cancel_token *token);

/*
 The number of tensors, in the order of the flattened result.

 # Safety
 `outputs` are outputs.
 */
size_t fxc_outputs_count(const struct fxc_outputs *outputs);

/*
 Tensor `index`. The memory that `out` refers to is valid until the outputs are freed.

 # Safety
 `outputs` are outputs; `out` is valid for writing.
 */
enum fxc_status fxc_outputs_get(const struct fxc_outputs *outputs, size_t index, struct fxc_tensor *out);

/*
 Frees outputs.

 # Safety
 `outputs` is NULL, or outputs that are no longer used.
 */
void fxc_outputs_free(struct fxc_outputs *outputs);

/*
 Calls the model: see fxc_compiled_run.

 # Safety
 `session` is a session that no other thread uses during the call; `inputs` points to `input_count` tensors; `out`
 is valid for writing.
 */
enum fxc_status fxc_session_run(struct fxc_session *session,
                                const struct fxc_tensor *inputs,
                                size_t input_count,
                                struct fxc_outputs **out);

/*
 Calls the model and writes the results to the caller's memory: see fxc_compiled_run_into.

 # Safety
 `session` is a session that no other thread uses during the call; the other arguments are as for
 fxc_compiled_run_into.
 */
enum fxc_status fxc_session_run_into(struct fxc_session *session,
                                     const struct fxc_tensor *inputs,
                                     size_t input_count,
                                     const struct fxc_buffer *outputs,
                                     size_t output_count);

/*
 The buffers that calls have updated or fxc_session_set_state has set, named by path.

 # Safety
 `session` is a session that no other thread uses during the call; `out` is valid for writing.
 */
enum fxc_status fxc_session_state(const struct fxc_session *session, struct fxc_outputs **out);

/*
 Sets the value of a buffer for the next call. The value is copied and must have the buffer's dtype and shape.

 # Safety
 `session` is a session that no other thread uses during the call; `path` is a NUL-terminated text; `value` is a
 tensor.
 */
enum fxc_status fxc_session_set_state(struct fxc_session *session,
                                      const char *path,
                                      const struct fxc_tensor *value);

/*
 Resets all buffers to their initial values.

 # Safety
 `session` is a session that no other thread uses during the call.
 */
enum fxc_status fxc_session_reset(struct fxc_session *session);

/*
 Frees a session.

 # Safety
 `session` is NULL, or a session that is no longer used.
 */
void fxc_session_free(struct fxc_session *session);

/*
 The last error of the calling thread in one line; NULL if there was none. The text is valid until a function of
 this thread fails again.
 */
const char *fxc_last_error(void);

/*
 The last error of the calling thread as the command line prints it, with snippets, causes and help; NULL if there was none.
 */
const char *fxc_last_error_report(void);

/*
 The code of the last error of the calling thread, such as "E0504" (`fxc explain E0504` explains it); empty if the
 error has no code, NULL if there was no error.
 */
const char *fxc_last_error_code(void);

/*
 The version of fxc.
 */
const char *fxc_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FXC_H */
