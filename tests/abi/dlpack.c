/* Tensors go to and from DLPack without a copy; the structs are those of dlpack.h 1.3. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tiled.h"

typedef struct { int32_t device_type, device_id; } device;
typedef struct { uint8_t code, bits; uint16_t lanes; } data_type;
typedef struct {
    void *data;
    device where;
    int32_t ndim;
    data_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;
struct DLManagedTensor {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *);
};
struct DLManagedTensorVersioned {
    struct { uint32_t major, minor; } version;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    dl_tensor tensor;
};

static int released = 0;
static void release(void *user) { released += *(int *)user; }

#define EXPECT(claim) do { if (!(claim)) { fprintf(stderr, "line %d: %s\n", __LINE__, #claim); return 1; } } while (0)

int main(void) {
    float values[24] = {0};
    int one = 1;
    const int64_t shape[4] = {1, 2, 3, 4};
    tiled_tensor t, back;
    EXPECT(tiled_tensor_contiguous(TILED_DTYPE_F32, values, shape, &t, sizeof t) == TILED_STATUS_OK);
    DLManagedTensorVersioned *managed = NULL;
    EXPECT(tiled_tensor_to_dlpack_versioned(&t, release, &one, &managed) == TILED_STATUS_OK);
    EXPECT(managed->version.major == 1 && managed->tensor.ndim == 4 && managed->tensor.shape[3] == 4);
    EXPECT(managed->tensor.data == values && managed->tensor.strides[0] == 24 && managed->tensor.dtype.bits == 32);
    EXPECT(tiled_tensor_from_dlpack_versioned(managed, &back, sizeof back) == TILED_STATUS_OK);
    EXPECT(back.data == values && back.shape[1] == 2 && back.strides[1] == 12 && back.dtype == TILED_DTYPE_F32);
    managed->version.major = 2;
    EXPECT(tiled_tensor_from_dlpack_versioned(managed, &back, sizeof back) == TILED_STATUS_UNSUPPORTED);
    managed->deleter(managed);
    EXPECT(released == 1);

    DLManagedTensor *offered = NULL;
    EXPECT(tiled_tensor_to_dlpack(&t, release, &one, &offered) == TILED_STATUS_OK);
    EXPECT(offered->tensor.data == values && offered->tensor.shape[1] == 2 && offered->tensor.strides[1] == 12);
    EXPECT(tiled_tensor_from_dlpack(offered, &back, sizeof back) == TILED_STATUS_OK && back.shape[2] == 3);
    offered->deleter(offered);
    EXPECT(released == 2);

    int64_t rows_cols[2] = {4, 6};
    struct DLManagedTensor old = {{values, {1, 0}, 2, {2, 32, 1}, rows_cols, NULL, 0}, NULL, NULL};
    EXPECT(tiled_tensor_from_dlpack(&old, &back, sizeof back) == TILED_STATUS_OK);
    EXPECT(back.shape[0] == 1 && back.shape[2] == 4 && back.strides[2] == 6 && back.strides[3] == 1);
    old.tensor.where.device_type = 3;
    EXPECT(tiled_tensor_from_dlpack(&old, &back, sizeof back) == TILED_STATUS_UNSUPPORTED);
    old.tensor.where.device_type = 2, old.tensor.where.device_id = 5;
    EXPECT(tiled_tensor_from_dlpack(&old, &back, sizeof back) == TILED_STATUS_OK);
    EXPECT(back.device_type == TILED_MEMORY_CUDA && back.device_id == 5 && back.stream == NULL);
    EXPECT(tiled_tensor_to_dlpack(&back, release, &one, &offered) == TILED_STATUS_OK);
    EXPECT(offered->tensor.where.device_type == 2 && offered->tensor.where.device_id == 5);
    offered->deleter(offered);
    old.tensor.where.device_id = 0;
    old.tensor.where.device_type = 1;
    old.tensor.dtype.bits = 16;
    EXPECT(tiled_tensor_from_dlpack(&old, &back, sizeof back) == TILED_STATUS_OK && back.dtype == TILED_DTYPE_F16);
    old.tensor.dtype.bits = 8;
    EXPECT(tiled_tensor_from_dlpack(&old, &back, sizeof back) == TILED_STATUS_DTYPE);
    return 0;
}
