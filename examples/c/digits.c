/* Classifies handwritten digits: digits MODEL IMAGES LABELS

   The model is examples/digits/digits.fxir, the other two files are images.bin and labels.bin of this folder. */
#include <fxc.h>
#include <stdio.h>
#include <stdlib.h>

enum { IMAGES = 120, PIXELS = 8 * 8, CLASSES = 10 };

/* Ends the program with what fxc says, if a call failed. */
static void check(fxc_status status) {
    if (status != FXC_OK) {
        fprintf(stderr, "%s\n", fxc_last_error_report());
        exit(1);
    }
}

static void read_file(const char *path, void *data, size_t bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "cannot read %zu bytes of %s\n", bytes, path);
        exit(1);
    }
    fclose(file);
}

static int largest(const float *scores) {
    int best = 0;
    for (int i = 1; i < CLASSES; i++) {
        if (scores[i] > scores[best]) {
            best = i;
        }
    }
    return best;
}

int main(int argc, char **argv) {
    static float images[IMAGES * PIXELS], scores[IMAGES * CLASSES];
    static int64_t labels[IMAGES];
    if (argc != 4) {
        fprintf(stderr, "usage: digits MODEL IMAGES LABELS\n");
        return 2;
    }
    read_file(argv[2], images, sizeof images);
    read_file(argv[3], labels, sizeof labels);

    fxc_model *model = NULL;
    fxc_compiled *compiled = NULL;
    check(fxc_model_open(argv[1], &model));
    for (size_t i = 0; i < fxc_model_input_count(model); i++) {
        fxc_value_info info;
        check(fxc_model_input(model, i, &info));
        printf("input %s: %s\n", info.name, info.type_text);
    }
    check(fxc_model_compile(model, NULL, &compiled));
    fxc_model_free(model);

    /* The images go in, and the scores come out, where they are: nothing is copied. */
    size_t shape[4] = {IMAGES, 1, 8, 8}, score_shape[2] = {IMAGES, CLASSES};
    fxc_tensor x = {.data = images, .dtype = FXC_F32, .rank = 4, .shape = shape};
    fxc_buffer y = {.data = scores, .dtype = FXC_F32, .rank = 2, .shape = score_shape};
    check(fxc_compiled_run_into(compiled, &x, 1, &y, 1));
    fxc_compiled_free(compiled);

    int right = 0;
    for (int i = 0; i < IMAGES; i++) {
        right += largest(scores + i * CLASSES) == labels[i];
    }
    printf("%d of %d digits are right\n", right, IMAGES);
    return right > IMAGES * 9 / 10 ? 0 : 1;
}
