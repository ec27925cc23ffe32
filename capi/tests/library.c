/* Calls every function of fxc.h, with right and wrong arguments. Prints what fails. */
#include <fxc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
#define EXPECT(what)                                                                                \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            failures++;                                                                             \
            printf("line %d: %s; %s\n", __LINE__, #what, fxc_last_error() ? fxc_last_error() : ""); \
        }                                                                                           \
    } while (0)

static const char COUNTER[] = "const total : f32[2] = [0, 0]\n"
                              "graph main {\n"
                              "    %x : f32[N, 2] = placeholder x\n"
                              "    %t = get_attr total\n"
                              "    %s = call_function torch.sum(%x, 0)\n"
                              "    %u = call_method add_(%t, %s)\n"
                              "    %y = call_function operator.mul(%t, 1)\n"
                              "    output (%y, %s)\n"
                              "}\n";

static fxc_compiled *compile(const char *text, const fxc_options *options) {
    fxc_model *model = NULL;
    fxc_compiled *compiled = NULL;
    EXPECT(fxc_model_from_text(text, strlen(text), &model) == FXC_OK);
    EXPECT(fxc_model_compile(model, options, &compiled) == FXC_OK);
    fxc_model_free(model);
    return compiled;
}

static void describe_models(void) {
    fxc_model *model = NULL;
    EXPECT(fxc_model_from_text(COUNTER, strlen(COUNTER), &model) == FXC_OK);
    EXPECT(fxc_model_input_count(model) == 1);
    fxc_value_info info;
    EXPECT(fxc_model_input(model, 0, &info) == FXC_OK);
    EXPECT(strcmp(info.name, "x") == 0 && strcmp(info.type_text, "f32[N, 2]") == 0);
    EXPECT(info.dtype == FXC_F32 && info.rank == 2 && info.shape[0] == -1 && info.shape[1] == 2);
    EXPECT(fxc_model_output_count(model) == 2);
    EXPECT(fxc_model_output(model, 1, &info) == FXC_OK && strcmp(info.type_text, "f32[2]") == 0);
    EXPECT(fxc_model_output(model, 2, &info) == FXC_INVALID_ARGUMENT);
    fxc_model_free(model);
}

static void run_calls(void) {
    fxc_compiled *compiled = compile(COUNTER, NULL);
    float data[6] = {1, 2, 3, 4, 5, 6};
    size_t shape[2] = {3, 2};
    ptrdiff_t across[2] = {1, 3};
    fxc_tensor x = {.data = data, .dtype = FXC_F32, .rank = 2, .shape = shape, .name = "x"};
    fxc_tensor transposed = {.data = data, .dtype = FXC_F32, .rank = 2, .shape = shape, .strides = across};
    fxc_tensor t;
    for (int i = 0; i < 2; i++) {
        fxc_outputs *out = NULL;
        EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_OK);
        EXPECT(fxc_outputs_count(out) == 2);
        EXPECT(fxc_outputs_get(out, 1, &t) == FXC_OK && strcmp(t.name, "output.1") == 0);
        EXPECT(t.rank == 1 && t.shape[0] == 2 && ((const float *)t.data)[0] == 9 && ((const float *)t.data)[1] == 12);
        EXPECT(fxc_outputs_get(out, 2, &t) == FXC_INVALID_ARGUMENT);
        fxc_outputs_free(out);
        EXPECT(fxc_compiled_run(compiled, &transposed, 1, &out) == FXC_OK);
        EXPECT(fxc_outputs_get(out, 1, &t) == FXC_OK && ((const float *)t.data)[0] == 6);
        fxc_outputs_free(out);
    }

    fxc_session *session = NULL;
    EXPECT(fxc_compiled_session(compiled, &session) == FXC_OK);
    fxc_compiled_free(compiled);
    float total[2], sum[2];
    size_t two = 2;
    fxc_buffer places[2] = {{total, FXC_F32, 1, &two}, {sum, FXC_F32, 1, &two}};
    for (int i = 1; i <= 3; i++) {
        EXPECT(fxc_session_run_into(session, &x, 1, places, 2) == FXC_OK);
        EXPECT(total[0] == 9 * i && total[1] == 12 * i && sum[0] == 9);
    }
    EXPECT(fxc_session_run_into(session, &x, 1, places, 1) == FXC_ERROR);
    fxc_outputs *state = NULL;
    EXPECT(fxc_session_state(session, &state) == FXC_OK && fxc_outputs_count(state) == 1);
    EXPECT(fxc_outputs_get(state, 0, &t) == FXC_OK && strcmp(t.name, "total") == 0 && ((const float *)t.data)[0] == 27);
    EXPECT(fxc_session_reset(session) == FXC_OK);
    EXPECT(fxc_session_set_state(session, "total", &t) == FXC_OK);
    EXPECT(fxc_session_set_state(session, "totl", &t) == FXC_ERROR);
    fxc_outputs_free(state);
    fxc_outputs *out = NULL;
    EXPECT(fxc_session_run(session, &x, 1, &out) == FXC_OK);
    EXPECT(fxc_outputs_get(out, 0, &t) == FXC_OK && ((const float *)t.data)[0] == 36);
    fxc_outputs_free(out);
    fxc_session_free(session);
}

/* Writes compiled models for several sizes and processors, and reads them again. */
static void save_and_open(void) {
    static const char *const OPEN_SIZE = "graph main { %x : f32[N, 2] = placeholder x\n%y = call_function add(%x, 1)\noutput %y }";
    const char *path = "library-test.fxc";
    const int64_t sizes[2] = {1, 3};
    fxc_model *model = NULL, *read = NULL;
    fxc_options *options = fxc_options_new();
    EXPECT(fxc_options_add_sizes(options, "N", sizes, 2) == FXC_OK && fxc_options_add_target(options, "native") == FXC_OK);
    EXPECT(fxc_options_add_target(options, "z80") == FXC_INVALID_ARGUMENT && strstr(fxc_last_error(), "z80") != NULL);
    EXPECT(fxc_options_set_code_only(options, true) == FXC_OK);
    EXPECT(fxc_model_from_text(OPEN_SIZE, strlen(OPEN_SIZE), &model) == FXC_OK);
    EXPECT(fxc_model_save_compiled(model, path, options) == FXC_OK);
    EXPECT(fxc_model_save_compiled(model, "no/such/folder/m.fxc", NULL) == FXC_ERROR);
    fxc_model_free(model);
    fxc_options_free(options);

    options = fxc_options_new();
    EXPECT(fxc_options_set_allow_code(options, false) == FXC_OK);
    EXPECT(fxc_model_open_with(path, options, &read) == FXC_ERROR && read == NULL);
    EXPECT(fxc_options_set_allow_code(options, true) == FXC_OK && fxc_options_set_fallback(options, false) == FXC_OK);
    EXPECT(fxc_options_set_cache(options, false) == FXC_OK);
    EXPECT(fxc_model_open_with(path, options, &read) == FXC_OK);
    fxc_compiled *compiled = NULL;
    EXPECT(fxc_model_compile(read, options, &compiled) == FXC_OK);
    fxc_model_free(read);
    fxc_options_free(options);
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    for (size_t rows = 1; rows <= 4; rows++) {
        size_t shape[2] = {rows, 2};
        fxc_tensor x = {.data = in, .dtype = FXC_F32, .rank = 2, .shape = shape};
        fxc_buffer y = {out, FXC_F32, 2, shape};
        int prepared = rows == 1 || rows == 3;
        EXPECT((fxc_compiled_run_into(compiled, &x, 1, &y, 1) == FXC_OK) == prepared);
        EXPECT(!prepared || out[2 * rows - 1] == in[2 * rows - 1] + 1);
    }
    fxc_compiled_free(compiled);
    fxc_flush_cache();
    remove(path);
}

static void make_mistakes(void) {
    fxc_model *model = NULL;
    EXPECT(fxc_model_open("no/such/file.fxir", &model) == FXC_ERROR && model == NULL);
    EXPECT(strcmp(fxc_last_error_code(), "E0701") == 0);
    EXPECT(strstr(fxc_last_error(), "no/such/file.fxir") != NULL && strlen(fxc_last_error_report()) > 0);
    EXPECT(fxc_model_open(NULL, &model) == FXC_INVALID_ARGUMENT);
    EXPECT(fxc_model_open("\xff", &model) == FXC_INVALID_ARGUMENT);
    EXPECT(fxc_model_from_text(COUNTER, strlen(COUNTER), NULL) == FXC_INVALID_ARGUMENT);
    EXPECT(fxc_model_from_text("graph main { output %z }", 24, &model) == FXC_ERROR || model != NULL);
    fxc_model_free(model);
    EXPECT(fxc_model_input_count(NULL) == 0);
    EXPECT(fxc_compiled_run(NULL, NULL, 0, NULL) == FXC_INVALID_ARGUMENT);

    fxc_compiled *compiled = compile(COUNTER, NULL);
    size_t shape[2] = {1, 2}, large[2] = {(size_t)-1, 2};
    float data[2] = {1, 2};
    fxc_tensor x = {.data = data, .dtype = FXC_F32, .rank = 2, .shape = shape};
    fxc_outputs *out = NULL;
    EXPECT(fxc_compiled_run(compiled, NULL, 0, &out) == FXC_ERROR && strcmp(fxc_last_error_code(), "E0501") == 0);
    x.dtype = 99;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_INVALID_ARGUMENT);
    x.dtype = FXC_I32;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_ERROR && strcmp(fxc_last_error_code(), "E0503") == 0);
    x.dtype = FXC_F32, x.shape = large;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_INVALID_ARGUMENT);
    x.shape = NULL;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_INVALID_ARGUMENT);
    x.shape = shape, x.data = NULL;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_INVALID_ARGUMENT);
    x.data = data, x.name = "y";
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_ERROR && out == NULL);
    fxc_compiled_free(compiled);

    fxc_model_free(NULL), fxc_compiled_free(NULL), fxc_session_free(NULL), fxc_outputs_free(NULL);
    fxc_options_free(NULL), fxc_cancel_token_free(NULL);
}

static void exceed_limits(void) {
    static const char LARGE[] = "graph main { %x : f32[N] = placeholder x  %y = call_function torch.outer(%x, %x)  output %y }";
    fxc_options *few = fxc_options_new(), *small = fxc_options_new(), *late = fxc_options_new();
    EXPECT(fxc_options_set_max_nodes(few, 0) == FXC_OK && fxc_options_set_max_memory(small, 1 << 30) == FXC_OK);
    EXPECT(fxc_options_set_max_time(late, 0) == FXC_OK && fxc_options_set_max_time(late, -1) == FXC_INVALID_ARGUMENT);
    fxc_model *model = NULL;
    EXPECT(fxc_model_from_text_with(LARGE, strlen(LARGE), few, &model) == FXC_ERROR);
    EXPECT(strcmp(fxc_last_error_code(), "E0114") == 0);
    EXPECT(fxc_model_from_bytes((const uint8_t *)LARGE, strlen(LARGE), few, &model) == FXC_ERROR && model == NULL);
    EXPECT(fxc_model_from_bytes((const uint8_t *)LARGE, strlen(LARGE), NULL, &model) == FXC_OK);
    static float x[1 << 15];
    size_t length = 1 << 15;
    fxc_tensor in = {.data = x, .dtype = FXC_F32, .rank = 1, .shape = &length};
    fxc_compiled *compiled = NULL;
    fxc_outputs *out = NULL;
    EXPECT(fxc_model_compile(model, small, &compiled) == FXC_OK);
    EXPECT(fxc_compiled_run(compiled, &in, 1, &out) == FXC_ERROR && strcmp(fxc_last_error_code(), "E0509") == 0);
    length = 2;
    EXPECT(fxc_compiled_run(compiled, &in, 1, &out) == FXC_OK);
    fxc_outputs_free(out), fxc_compiled_free(compiled);
    compiled = NULL;
    EXPECT(fxc_model_compile(model, late, &compiled) == FXC_ERROR && strcmp(fxc_last_error_code(), "E0513") == 0);
    fxc_model_free(model);
    fxc_options_free(few), fxc_options_free(small), fxc_options_free(late);
}

static void set_options(void) {
    fxc_options *options = fxc_options_new();
    fxc_cancel_token *token = fxc_cancel_token_new();
    EXPECT(fxc_options_set_threads(options, 1) == FXC_OK && fxc_options_set_exact(options, true) == FXC_OK);
    EXPECT(fxc_options_set_dim(options, "N", 1) == FXC_OK && fxc_options_set_cancel(options, token) == FXC_OK);
    EXPECT(fxc_options_set_threads(NULL, 1) == FXC_INVALID_ARGUMENT);
    EXPECT(fxc_options_set_precision(options, "bf16") == FXC_OK && fxc_options_set_precision(options, "f32") == FXC_OK);
    EXPECT(fxc_options_set_precision(options, "f8") == FXC_INVALID_ARGUMENT && strstr(fxc_last_error(), "f8") != NULL);
    fxc_compiled *compiled = compile(COUNTER, options);
    fxc_options_free(options);
    size_t shape[2] = {1, 2}, other[2] = {2, 2};
    float data[4] = {1, 2, 3, 4};
    fxc_tensor x = {.data = data, .dtype = FXC_F32, .rank = 2, .shape = shape};
    fxc_outputs *out = NULL;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_OK);
    fxc_outputs_free(out);
    x.shape = other;
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_ERROR);
    x.shape = shape;
    EXPECT(fxc_cancel_token_cancel(token) == FXC_OK);
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_CANCELLED);
    EXPECT(fxc_cancel_token_reset(token) == FXC_OK);
    fxc_cancel_token_free(token);
    EXPECT(fxc_compiled_run(compiled, &x, 1, &out) == FXC_OK);
    fxc_outputs_free(out);
    fxc_compiled_free(compiled);
}

static void *call_many_times(void *compiled) {
    float data[4] = {1, 2, 3, 4}, total[2], sum[2];
    size_t shape[2] = {2, 2}, two = 2;
    fxc_tensor x = {.data = data, .dtype = FXC_F32, .rank = 2, .shape = shape};
    fxc_buffer places[2] = {{total, FXC_F32, 1, &two}, {sum, FXC_F32, 1, &two}};
    for (int i = 0; i < 200; i++) {
        if (fxc_compiled_run_into(compiled, &x, 1, places, 2) != FXC_OK || total[0] != 4 || sum[1] != 6) {
            return compiled;
        }
    }
    /* Errors are a thread's own. */
    fxc_compiled_run_into(compiled, &x, 1, places, 1);
    return fxc_last_error() == NULL ? compiled : NULL;
}

static void call_from_threads(void) {
    fxc_compiled *compiled = compile(COUNTER, NULL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        EXPECT(pthread_create(&threads[i], NULL, call_many_times, compiled) == 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        EXPECT(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    }
    fxc_compiled_free(compiled);
}

int main(void) {
    EXPECT(fxc_last_error() == NULL && strlen(fxc_version()) > 0);
    describe_models();
    run_calls();
    save_and_open();
    make_mistakes();
    set_options();
    exceed_limits();
    call_from_threads();
    return failures > 0;
}
