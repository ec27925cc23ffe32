/* fxc: the optimizing compiler for torch.fx graphs. docs/c.md has the examples; cbindgen writes this file of capi/src. */

#ifndef FXC_H
#define FXC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 How a call ended.
 */
typedef enum fxc_status {
  /*
   It did what it was asked to do.
   */
  FXC_OK = 0,
  /*
   The model, the inputs or a file are not as they should be: see fxc_last_error.
   */
  FXC_ERROR = 1,
  /*
   A pointer is NULL that must not be, a text is not UTF-8, or a number is out of range: a mistake of the calling program.
   */
  FXC_INVALID_ARGUMENT = 2,
  /*
   A cancel token stopped it.
   */
  FXC_CANCELLED = 3,
  /*
   A fault in fxc. The objects of the call should not be used any more.
   */
  FXC_PANIC = 4,
} fxc_status;

/*
 A token that stops compiling and calls.
 */
typedef struct fxc_cancel_token fxc_cancel_token;

/*
 A model's code. Any number of threads may call it at the same time.
 */
typedef struct fxc_compiled fxc_compiled;

/*
 A model as it was read.
 */
typedef struct fxc_model fxc_model;

/*
 How a model is compiled.
 */
typedef struct fxc_options fxc_options;

/*
 Tensors that own their memory: later calls do not change them.
 */
typedef struct fxc_outputs fxc_outputs;

/*
 A compiled model that remembers what calls change: each call finds the buffers as the last one left them. One thread at a time may
 use it.
 */
typedef struct fxc_session fxc_session;

/*
 An element type: one of the FXC_F32, FXC_I64, ….
 */
typedef uint32_t fxc_dtype;

/*
 A tensor to read.
 */
typedef struct fxc_tensor {
  /*
   The first element. Elements that are dense and aligned are read where they are, others are copied first.
   */
  const void *data;
  /*
   Element type.
   */
  fxc_dtype dtype;
  /*
   How many dimensions there are.
   */
  size_t rank;
  /*
   The sizes, outermost first.
   */
  const size_t *shape;
  /*
   The strides, in elements, which may be negative; NULL for row-major elements without gaps.
   */
  const ptrdiff_t *strides;
  /*
   The input that it is for; NULL for the next one by position.
   */
  const char *name;
} fxc_tensor;

/*
 A tensor to write, row-major without gaps.
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
   How many dimensions there are.
   */
  size_t rank;
  /*
   The sizes, outermost first.
   */
  const size_t *shape;
} fxc_buffer;

/*
 An input or a result of a model. The texts and the shape are the model's and valid until it is freed.
 */
typedef struct fxc_value_info {
  /*
   Its name.
   */
  const char *name;
  /*
   Its type as FXIR writes it: "f32[N, 3]"; empty if it is not known.
   */
  const char *type_text;
  /*
   Element type; FXC_UNKNOWN if it is not known, or not a tensor.
   */
  fxc_dtype dtype;
  /*
   How many dimensions there are; -1 if it is not known, or not a tensor.
   */
  int64_t rank;
  /*
   The sizes, -1 for one that is open.
   */
  const int64_t *shape;
} fxc_value_info;

/*
 Unknown before a call; no tensor has it.
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
 Calls the model on `input_count` tensors. Buffers that the model writes have their first values again in the next call: see
 fxc_compiled_session.

 # Safety
 `compiled` is a compiled model; `inputs` points to `input_count` tensors whose memory nobody writes meanwhile; `out` is valid for
 writing.
 */
enum fxc_status fxc_compiled_run(const struct fxc_compiled *compiled,
                                 const struct fxc_tensor *inputs,
                                 size_t input_count,
                                 struct fxc_outputs **out);

/*
 Calls the model with the tensors of its result, in flattened order, in memory of the caller's, which must be of their types.

 # Safety
 `compiled` is a compiled model; `inputs` points to `input_count` tensors whose memory nobody writes meanwhile; `outputs` points to
 `output_count` buffers that overlap neither the inputs nor each other and that nobody else uses meanwhile.
 */
enum fxc_status fxc_compiled_run_into(const struct fxc_compiled *compiled,
                                      const struct fxc_tensor *inputs,
                                      size_t input_count,
                                      const struct fxc_buffer *outputs,
                                      size_t output_count);

/*
 The compiled model with a memory of its own for what calls change. The compiled model may be freed afterwards.

 # Safety
 `compiled` is a compiled model; `out` is valid for writing.
 */
enum fxc_status fxc_compiled_session(const struct fxc_compiled *compiled,
                                     struct fxc_session **out);

/*
 Frees a compiled model.

 # Safety
 `compiled` is NULL, or a compiled model that nobody uses any more.
 */
void fxc_compiled_free(struct fxc_compiled *compiled);

/*
 Reads a model from a file: a .pt2 archive of torch.export, FXIR, or what torch prints of a graph. Weights are mapped, not read.

 # Safety
 `path` is a NUL-terminated text; `out` is valid for writing.
 */
enum fxc_status fxc_model_open(const char *path,
                               struct fxc_model **out);

/*
 Reads a model from a file as `fxc_model_open` does, with options: `fxc_options_set_allow_code` and `fxc_options_set_cache` count here.

 # Safety
 `path` is a NUL-terminated text; `options` is NULL for the default ones, or options; `out` is valid for writing.
 */
enum fxc_status fxc_model_open_with(const char *path,
                                    const struct fxc_options *options,
                                    struct fxc_model **out);

/*
 Writes the model with its code to a file (`model.fxc`), which every function that opens a model reads. Code is made for the sizes and
 processors of the options.

 # Safety
 `model` is a model; `path` is a NUL-terminated text; `options` is NULL for the default ones, or options.
 */
enum fxc_status fxc_model_save_compiled(const struct fxc_model *model,
                                        const char *path,
                                        const struct fxc_options *options);

/*
 Reads a model from a text of `len` bytes: FXIR, or what torch prints of a graph.

 # Safety
 `text` points to `len` bytes; `out` is valid for writing.
 */
enum fxc_status fxc_model_from_text(const char *text, size_t len, struct fxc_model **out);

/*
 How many inputs the model has.

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
 How many tensors, numbers and texts the model's result has; 0 with a last error if the graph is wrong.

 # Safety
 `model` is a model that no other thread uses meanwhile.
 */
size_t fxc_model_output_count(struct fxc_model *model);

/*
 Item `index` of the model's result.

 # Safety
 `model` is a model that no other thread uses meanwhile; `out` is valid for writing.
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
 `model` is NULL, or a model that nobody uses any more.
 */
void fxc_model_free(struct fxc_model *model);

/*
 The default options.
 */
struct fxc_options *fxc_options_new(void);

/*
 How many threads a call runs on, the caller's included; 0, the default, is one per processor.

 # Safety
 `options` are options that no other thread uses meanwhile.
 */
enum fxc_status fxc_options_set_threads(struct fxc_options *options, size_t threads);

/*
 Whether convolutions are the sums of their products, and no algorithm that rounds differently takes their place.

 # Safety
 `options` are options that no other thread uses meanwhile.
 */
enum fxc_status fxc_options_set_exact(struct fxc_options *options,
                                      bool exact);

/*
 Fixes a symbolic size. Calls with another size fail.

 # Safety
 `options` are options that no other thread uses meanwhile; `name` is a NUL-terminated text.
 */
enum fxc_status fxc_options_set_dim(struct fxc_options *options, const char *name, int64_t size);

/*
 Adds a list of sizes for which code is made before the first call. `names` are symbolic sizes, separated by commas, which all take each
 of the `count` sizes; `x[0]` names a dimension of an input. Several lists are combined.

 # Safety
 `options` are options that no other thread uses meanwhile; `names` is a NUL-terminated text; `sizes` points to `count` sizes.
 */
enum fxc_status fxc_options_add_sizes(struct fxc_options *options,
                                      const char *names,
                                      const int64_t *sizes,
                                      size_t count);

/*
 Adds a processor for which `fxc_model_save_compiled` writes code, in place of the machine's: "x86-64-v3".

 # Safety
 `options` are options that no other thread uses meanwhile; `target` is a NUL-terminated text.
 */
enum fxc_status fxc_options_add_target(struct fxc_options *options, const char *target);

/*
 Whether `fxc_model_save_compiled` leaves the graphs and their weights out of the file, which then only runs where its code fits.

 # Safety
 `options` are options that no other thread uses meanwhile.
 */
enum fxc_status fxc_options_set_code_only(struct fxc_options *options,
                                          bool code_only);

/*
 Whether `fxc_model_open_with` accepts compiled models (`.fxc`), which are programs; true by default. A program that opens files which
 others name should not accept them.

 # Safety
 `options` are options that no other thread uses meanwhile.
 */
enum fxc_status fxc_options_set_allow_code(struct fxc_options *options,
                                           bool allowed);

/*
 Whether a compiled model without usable code for the inputs or the machine is compiled again (true, the default) or is an error.

 # Safety
 `options` are options that no other thread uses meanwhile.
 */
enum fxc_status fxc_options_set_fallback(struct fxc_options *options,
                                         bool allowed);

/*
 Whether code is kept in the user's cache of compiled models and taken from there; false by default. It counts where models are opened
 (`fxc_model_open_with`) and where they are compiled. `fxc_flush_cache` waits until the code is written.

 # Safety
 `options` are options that no other thread uses meanwhile.
 */
enum fxc_status fxc_options_set_cache(struct fxc_options *options,
                                      bool enabled);

/*
 Waits until the user's cache holds the code that calls have made. Call it before the process ends.
 */
void fxc_flush_cache(void);

/*
 Lets a token stop compiling and calls.

 # Safety
 `options` are options that no other thread uses meanwhile; `token` is a token.
 */
enum fxc_status fxc_options_set_cancel(struct fxc_options *options, const struct fxc_cancel_token *token);

/*
 Frees options.

 # Safety
 `options` is NULL, or options that nobody uses any more.
 */
void fxc_options_free(struct fxc_options *options);

/*
 A token that nobody has cancelled.
 */
struct fxc_cancel_token *fxc_cancel_token_new(void);

/*
 Stops the work that has the token, from any thread.

 # Safety
 `token` is a token.
 */
enum fxc_status fxc_cancel_token_cancel(const struct fxc_cancel_token *token);

/*
 Lets later work run again.

 # Safety
 `token` is a token.
 */
enum fxc_status fxc_cancel_token_reset(const struct fxc_cancel_token *token);

/*
 Frees a token. Options that have it keep what it is.

 # Safety
 `token` is NULL, or a token that nobody uses any more.
 */
void fxc_cancel_token_free(struct fxc_cancel_token *token);

/*
 How many tensors there are, in the order of the flattened result.

 # Safety
 `outputs` are outputs.
 */
size_t fxc_outputs_count(const struct fxc_outputs *outputs);

/*
 Tensor `index`; what `out` points to is valid until the outputs are freed.

 # Safety
 `outputs` are outputs; `out` is valid for writing.
 */
enum fxc_status fxc_outputs_get(const struct fxc_outputs *outputs, size_t index, struct fxc_tensor *out);

/*
 Frees outputs.

 # Safety
 `outputs` is NULL, or outputs that nobody uses any more.
 */
void fxc_outputs_free(struct fxc_outputs *outputs);

/*
 Calls the model: see fxc_compiled_run.

 # Safety
 `session` is a session that no other thread uses meanwhile; `inputs` points to `input_count` tensors; `out` is valid for writing.
 */
enum fxc_status fxc_session_run(struct fxc_session *session,
                                const struct fxc_tensor *inputs,
                                size_t input_count,
                                struct fxc_outputs **out);

/*
 Calls the model with results in memory of the caller's: see fxc_compiled_run_into.

 # Safety
 `session` is a session that no other thread uses meanwhile; the rest is as for fxc_compiled_run_into.
 */
enum fxc_status fxc_session_run_into(struct fxc_session *session,
                                     const struct fxc_tensor *inputs,
                                     size_t input_count,
                                     const struct fxc_buffer *outputs,
                                     size_t output_count);

/*
 The buffers that calls have changed or fxc_session_set_state has set, named by their paths.

 # Safety
 `session` is a session that no other thread uses meanwhile; `out` is valid for writing.
 */
enum fxc_status fxc_session_state(const struct fxc_session *session, struct fxc_outputs **out);

/*
 Gives a buffer the value that the next call finds, which is copied. It must be of the buffer's dtype and shape.

 # Safety
 `session` is a session that no other thread uses meanwhile; `path` is a NUL-terminated text; `value` is a tensor.
 */
enum fxc_status fxc_session_set_state(struct fxc_session *session,
                                      const char *path,
                                      const struct fxc_tensor *value);

/*
 Gives all buffers their first values again.

 # Safety
 `session` is a session that no other thread uses meanwhile.
 */
enum fxc_status fxc_session_reset(struct fxc_session *session);

/*
 Frees a session.

 # Safety
 `session` is NULL, or a session that nobody uses any more.
 */
void fxc_session_free(struct fxc_session *session);

/*
 The last error of the calling thread in one line; NULL if there was none. The text is valid until a function of this thread fails
 again.
 */
const char *fxc_last_error(void);

/*
 The last error of the calling thread as the command line prints it, with snippets, causes and help; NULL if there was none.
 */
const char *fxc_last_error_report(void);

/*
 The code of the last error of the calling thread, such as "E0504" (`fxc explain E0504` tells more); empty if it has none, NULL if
 there was no error.
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
