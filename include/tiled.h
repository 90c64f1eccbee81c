/**
 * @file tiled.h
 * Exact tiled execution and training of convolutional networks on images that do not fit in memory: the C interface.
 *
 * Written by cbindgen from crates/capi; do not edit.
 *
 * Conventions, for every function:
 * - Names are `tiled_<noun>_<verb>`; arguments are self, inputs, outputs. Layouts are NCHW, weights OIHW, axes height then
 *   width, intervals half-open. Sizes are 64-bit; strides count elements, names that end in `_bytes` count bytes.
 * - The result is a `tiled_status`; `tiled_last_error` copies the message of this thread's last failure.
 * - NULL is always checked: where a comment does not say that a pointer may be NULL, it gives TILED_STATUS_NULL_POINTER.
 * - Outputs are written only on success.
 * - Handles are opaque and are no addresses. What a `_new` gives out belongs to the caller until its one `_free`. A handle
 *   of the wrong kind, freed or never made is told by a status. `const T *` may be shared between threads; `T *` is used by
 *   one call at a time, and TILED_STATUS_BUSY is the answer to a second one.
 * - A panic inside becomes TILED_STATUS_PANIC, and a handle that was being changed is poisoned: it can only be freed.
 * - Structs that may grow begin with `struct_size`. Their `_init` takes `sizeof` the struct and sets every field; a program
 *   built with an older header runs with a newer library, and the other way round where it uses no newer field.
 * - Memory that tensors describe belongs to the caller, and is used until the call returns.
 * - Where a comment names no threads, any thread may call, several at once.
 * - Callbacks get back `user`. They run on the threads that their type names, and must neither throw nor unwind.
 * - Where a comment speaks of "Safety", it says what the library cannot check.
 */

#ifndef TILED_H
#define TILED_H

#include <stddef.h>
#include <stdint.h>

/**
 * The major version that this header belongs to.
 */
#define TILED_VERSION_MAJOR 0

/**
 * The minor version that this header belongs to.
 */
#define TILED_VERSION_MINOR 1

/**
 * The patch that this header belongs to.
 */
#define TILED_VERSION_PATCH 0

/**
 * Something failed; the call's status says so as well.
 */
#define TILED_LOG_ERROR 1

/**
 * What was made and what it takes: engines, plans, executors.
 */
#define TILED_LOG_INFO 2

/**
 * IEEE 754 binary32, `float`.
 */
#define TILED_DTYPE_F32 1

/**
 * IEEE 754 binary64, `double`.
 */
#define TILED_DTYPE_F64 2

/**
 * Integers of 8 bits without a sign; this and all that follow only in sources and sinks of runs that lie in memory.
 */
#define TILED_DTYPE_U8 3

/**
 * Integers of 8 bits.
 */
#define TILED_DTYPE_I8 4

/**
 * Integers of 16 bits without a sign.
 */
#define TILED_DTYPE_U16 5

/**
 * Integers of 16 bits.
 */
#define TILED_DTYPE_I16 6

/**
 * Integers of 32 bits without a sign.
 */
#define TILED_DTYPE_U32 7

/**
 * Integers of 32 bits.
 */
#define TILED_DTYPE_I32 8

/**
 * Integers of 64 bits without a sign.
 */
#define TILED_DTYPE_U64 9

/**
 * Integers of 64 bits.
 */
#define TILED_DTYPE_I64 10

/**
 * IEEE 754 binary16.
 */
#define TILED_DTYPE_F16 11

/**
 * The upper half of an IEEE 754 binary32.
 */
#define TILED_DTYPE_BF16 12

/**
 * Memory of the host, `kDLCPU`.
 */
#define TILED_MEMORY_HOST 1

/**
 * Memory of an NVIDIA GPU, `kDLCUDA`.
 */
#define TILED_MEMORY_CUDA 2

/**
 * Memory of a simulated GPU, `kDLExtDev`: any of the host, which its kernels touch as a GPU's do theirs.
 */
#define TILED_MEMORY_CUDA_SIM 12

/**
 * The cores of this machine.
 */
#define TILED_DEVICE_CPU 1

/**
 * An NVIDIA GPU.
 */
#define TILED_DEVICE_CUDA 2

/**
 * A GPU that this machine simulates, where there is a C++ compiler.
 */
#define TILED_DEVICE_CUDA_SIM 3

/**
 * No activation.
 */
#define TILED_ACTIVATION_NONE 0

/**
 * `max(x, 0)`.
 */
#define TILED_ACTIVATION_RELU 1

/**
 * `x` where `x > 0`, else `negative_slope·x`.
 */
#define TILED_ACTIVATION_LEAKY_RELU 2

/**
 * `1 / (1 + e^(−x))`.
 */
#define TILED_ACTIVATION_SIGMOID 3

/**
 * The hyperbolic tangent.
 */
#define TILED_ACTIVATION_TANH 4

/**
 * `x·sigmoid(x)`.
 */
#define TILED_ACTIVATION_SILU 5

/**
 * `x·(1 + erf(x/√2))/2`.
 */
#define TILED_ACTIVATION_GELU 6

/**
 * Batch normalisation uses running statistics, dropout does nothing.
 */
#define TILED_MODE_EVAL 0

/**
 * Batch normalisation uses the image's statistics, dropout drops.
 */
#define TILED_MODE_TRAIN 1

/**
 * No gradients.
 */
#define TILED_LOSS_NONE 0

/**
 * The caller gives the gradient with respect to each output.
 */
#define TILED_LOSS_GRAD_OUTPUT 1

/**
 * The sum of all outputs.
 */
#define TILED_LOSS_SUM 2

/**
 * Mean squared error of the first output against a target of its shape.
 */
#define TILED_LOSS_MEAN_SQUARED_ERROR 3

/**
 * Mean over pixels of the cross-entropy of the first output against a target of `target_channels` channels: 1 for
 * class numbers, or the output's channels for probabilities. A class number is a whole number from 0 to one less than
 * the output's channels, or the objective's `ignore_index`, whose pixels have no loss and no gradient and are left out of the
 * mean. Before a run every class number is read once more than the run does itself; one that is neither fails with
 * `TILED_STATUS_OUT_OF_RANGE`, and so does a target whose pixels are all ignored.
 */
#define TILED_LOSS_CROSS_ENTROPY 4

/**
 * The caller gives the gradient with respect to each output once it has seen the outputs: `tiled_executor_forward`, then
 * `tiled_executor_backward`.
 */
#define TILED_LOSS_GRAD_OUTPUT_LATER 5

/**
 * As `ignore_index` of an objective: no class is ignored.
 */
#define TILED_NO_IGNORE_INDEX 9223372036854775807

/**
 * The planner chooses.
 */
#define TILED_HOLD_AUTO 0

/**
 * Windows of a few rows slide down the image; rows are computed once.
 */
#define TILED_HOLD_SLIDE 1

/**
 * Every tile computes its whole region; overlaps are computed again.
 */
#define TILED_HOLD_RECOMPUTE 2

/**
 * Whole tensors in memory: the untiled run.
 */
#define TILED_HOLD_MATERIALISE 3

/**
 * Lines for a terminal.
 */
#define TILED_EXPLAIN_TEXT 1

/**
 * A JSON document, for programs: passes and nodes, without single steps.
 */
#define TILED_EXPLAIN_JSON 2

/**
 * An SVG picture of tiles, regions and memory.
 */
#define TILED_EXPLAIN_SVG 3

/**
 * As `memory_bytes` of `tiled_plan_options`: any number of bytes.
 */
#define TILED_MEMORY_UNLIMITED UINT64_MAX

/**
 * `memory_bytes` of `tiled_plan_options` set the budget.
 */
#define TILED_BUDGET_GIVEN 1

/**
 * `TILED_MEMORY_UNLIMITED`: there is none.
 */
#define TILED_BUDGET_UNLIMITED 2

/**
 * What of the machine's memory was free or could be freed.
 */
#define TILED_BUDGET_FREE_MEMORY 3

/**
 * What a control group of the process, a container's for one, had left.
 */
#define TILED_BUDGET_CONTROL_GROUP 4

/**
 * What the limit of the process's addresses left, `ulimit -v`.
 */
#define TILED_BUDGET_ADDRESS_SPACE 5

/**
 * What the limit of the process's data left, `ulimit -d`.
 */
#define TILED_BUDGET_DATA_SIZE 6

/**
 * What the machine could still promise where it promises no more than it has.
 */
#define TILED_BUDGET_COMMITMENT 7

/**
 * 4 GiB, because the system does not say what is free.
 */
#define TILED_BUDGET_ASSUMED 8

/**
 * As part of `in_memory` of `tiled_plan_options`: all inputs.
 */
#define TILED_IN_MEMORY_INPUTS 1

/**
 * The target of the loss.
 */
#define TILED_IN_MEMORY_TARGET 2

/**
 * The gradients of all outputs.
 */
#define TILED_IN_MEMORY_GRAD_OUTPUTS 4

/**
 * All outputs.
 */
#define TILED_IN_MEMORY_OUTPUTS 8

/**
 * The gradients of all inputs.
 */
#define TILED_IN_MEMORY_GRAD_INPUTS 16

/**
 * As `source` of `tiled_chunks`: an input of the network.
 */
#define TILED_CHUNKS_INPUT 0

/**
 * The target of the loss, where it is not of class numbers.
 */
#define TILED_CHUNKS_TARGET 1

/**
 * The gradient with respect to an output.
 */
#define TILED_CHUNKS_GRAD_OUTPUT 2

/**
 * The values themselves are written.
 */
#define TILED_DECISION_NONE 0

/**
 * The number of the channel with the largest value is written, from 0 on, the first of equal ones; NaN wins. Memory of integers gets the number
 * as it is, whatever `numbers` says.
 */
#define TILED_DECISION_ARGMAX 1

/**
 * For each channel 1 is written where the value is above the threshold, else 0; NaN stays.
 */
#define TILED_DECISION_ABOVE 2

/**
 * Integers of 8 and 16 bits without a sign stand for 0 to 1; others are the numbers that they are.
 */
#define TILED_NUMBERS_SCALED 0

/**
 * Integers are the numbers that they are: so class numbers are read and written.
 */
#define TILED_NUMBERS_AS_IS 1

/**
 * Stochastic gradient descent, as `torch.optim.SGD`.
 */
#define TILED_OPTIMIZER_SGD 1

/**
 * Adam with decoupled weight decay, as `torch.optim.AdamW`.
 */
#define TILED_OPTIMIZER_ADAMW 2

/**
 * The struct of this name of `dlpack.h`, before version 1.
 */
typedef struct DLManagedTensor DLManagedTensor;

/**
 * The struct of this name of `dlpack.h`, since version 1.
 */
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;

/**
 * A backend, its threads, and what is kept of single operators for calls of the same shapes: plan and memory of the last call, and of others
 * while all of them hold at most 64 MiB.
 *
 * A call that changes it (every operator) has it alone: have one engine per thread. Planning and making executors only
 * read it. A process that was forked has none of its threads: make engines and executors after `fork`.
 */
typedef struct tiled_engine tiled_engine;

/**
 * Runs a plan, any number of times. All its memory is allocated when it is made, or with the first run where its plan has
 * `releases_weights`. One call at a time.
 */
typedef struct tiled_executor tiled_executor;

/**
 * A network: inputs, operators over values that stand before them, and outputs.
 *
 * Adding to it changes it; everything else reads it, and `const` handles may be shared by threads.
 */
typedef struct tiled_graph tiled_graph;

/**
 * A partition of an image into tiles: no gap, no overlap. Immutable; `const` handles may be shared by threads.
 */
typedef struct tiled_grid tiled_grid;

/**
 * A run whose outputs are written and whose gradients wait for those of the outputs.
 */
typedef struct tiled_pending tiled_pending;

/**
 * What a run will do: passes over the image in tiles, with the memory and the arithmetic that they take.
 *
 * Immutable; `const` handles may be shared by threads.
 */
typedef struct tiled_plan tiled_plan;

/**
 * Trains the parameters of a network, one step at a time. One call at a time.
 */
typedef struct tiled_trainer tiled_trainer;

/**
 * The parameters of a network, in its order: nodes in order, and for each weight, bias, running mean, running variance, number
 * of batches. One that several nodes read stands once, with the first.
 */
typedef struct tiled_weights tiled_weights;

/**
 * What a call came to. Numbers are never reused; treat one that you do not know as a failure.
 */
typedef int32_t tiled_status;

/**
 * Where the library's messages go.
 */
typedef struct tiled_logger {
    /**
     * The size of the struct, as `tiled_logger_init` sets it.
     */
    uint32_t struct_size;
    /**
     * The most detailed level that is wanted: `TILED_LOG_ERROR` or `TILED_LOG_INFO`.
     */
    int32_t level;
    /**
     * Gets `user`, the level and a text that lives until it returns. Called on the thread that made the call
     * that logs, several at once; it must not call the library.
     */
    void (*log)(void *user, int32_t level, const char *message);
    /**
     * Given back to `log`.
     */
    void *user;
} tiled_logger;

/**
 * Where the library's large blocks come from: windows, stores, parameters, staging, everything of 64 KiB and more.
 *
 * Smaller blocks come from the system, so that a slow allocator (pinned memory, a framework's arena) is asked rarely. The same
 * goes for what a refusal could not be told from: see `allocate`.
 */
typedef struct tiled_allocator {
    /**
     * The size of the struct, as `tiled_allocator_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Gives `size` bytes at an address that is a multiple of `alignment`, a power of two, or NULL where there are
     * none; the call then fails with `TILED_STATUS_OUT_OF_MEMORY`, with nothing lost and every handle as usable as
     * before. A large text that explains a plan and is refused comes from the system, and the call goes on. Any thread,
     * several at once; must not call the library.
     */
    void *(*allocate)(void *user, size_t size, size_t alignment);
    /**
     * Takes a block back, with the size and alignment that it was asked for. Any thread, several at once.
     */
    void (*deallocate)(void *user, void *block, size_t size, size_t alignment);
    /**
     * Given back to both.
     */
    void *user;
} tiled_allocator;

/**
 * A window along one axis: kernel size k, stride s, dilation d and padding p before the first input.
 *
 * Output `i` reads the inputs `i·s − p + d·u` for `u` in `[0, k)`; `k`, `s`, `d` are from 1 to 2^20, `p` from 0.
 */
typedef struct tiled_window {
    /**
     * The number of taps, k.
     */
    int64_t kernel;
    /**
     * The distance between the windows of neighbouring outputs, s.
     */
    int64_t stride;
    /**
     * The distance between neighbouring taps, d.
     */
    int64_t dilation;
    /**
     * The padding before the first input, p.
     */
    int64_t padding;
} tiled_window;

/**
 * The coordinates `begin <= x < end` of one axis; empty where `end <= begin`, and given back as `[0, 0)` then.
 */
typedef struct tiled_interval {
    /**
     * The first coordinate.
     */
    int64_t begin;
    /**
     * The coordinate after the last.
     */
    int64_t end;
} tiled_interval;

/**
 * A rectangle of coordinates: the product of an interval of rows and one of columns.
 */
typedef struct tiled_region {
    /**
     * The rows.
     */
    struct tiled_interval rows;
    /**
     * The columns.
     */
    struct tiled_interval cols;
} tiled_region;

/**
 * An NCHW tensor in memory of the caller.
 *
 * Element (n, c, y, x) lies at `data + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]`, in elements.
 * Extents are at least 1. Of a tensor that is read, strides may be zero or negative; of one that is written, no
 * two elements may share a place. The memory from the first to the last element belongs to the call that gets
 * the tensor; it may not overlap that of another tensor of the call that is written.
 *
 * Sources and sinks of runs may lie on the device of the engine (`device_type`, `device_id`), then of the type of the computation: no
 * element goes through the host. Every other tensor lies on the host.
 */
typedef struct tiled_tensor {
    /**
     * The size of the struct, as `tiled_tensor_init` sets it.
     */
    uint32_t struct_size;
    /**
     * `TILED_DTYPE_F32` or `TILED_DTYPE_F64`; in sources and sinks of runs any `TILED_DTYPE_…`.
     */
    int32_t dtype;
    /**
     * Element (0, 0, 0, 0), aligned to the element's size.
     */
    void *data;
    /**
     * Batch, channels, height, width.
     */
    int64_t shape[4];
    /**
     * Distances between neighbours along each axis, in elements.
     */
    int64_t strides[4];
    /**
     * Whose memory it is, `TILED_MEMORY_…`: the numbers of DLPack.
     */
    int32_t device_type;
    /**
     * Which device of its type; 0 for the host.
     */
    int32_t device_id;
    /**
     * Of a tensor on a GPU, a `CUstream` or `cudaStream_t` of it: what it was asked before the call comes before the run, which has
     * ended when the call returns. NULL for the default stream. Of a simulated GPU NULL; of the host it is not looked at.
     */
    void *stream;
} tiled_tensor;

/**
 * A device of the list.
 */
typedef struct tiled_device {
    /**
     * The size of the struct, set by the library.
     */
    uint32_t struct_size;
    /**
     * `TILED_DEVICE_…`.
     */
    int32_t kind;
    /**
     * Not zero where engines can be made for it; else `tiled_device_text` says why not.
     */
    int32_t is_there;
    /**
     * The multiprocessors of a GPU; 0 of others, and where nobody knows.
     */
    uint32_t multiprocessors;
    /**
     * The bytes of its memory; likewise.
     */
    uint64_t memory_bytes;
} tiled_device;

/**
 * What an engine is to be.
 */
typedef struct tiled_engine_options {
    /**
     * The size of the struct, as `tiled_engine_options_init` sets it.
     */
    uint32_t struct_size;
    /**
     * The threads, 1 to 1024; 0 for one per core. Calls with little to do stay on the thread of the caller.
     */
    uint32_t threads;
    /**
     * `"avx512"`, `"avx2"`, `"portable"`, or `"reference"` for the naive oracle; NULL for the best that this CPU has
     * (or what the environment variable `TILED_ISA` names). Read during the call.
     */
    const char *isa;
    /**
     * `"cpu"`, `"cuda"` or `"cuda:N"` for an NVIDIA GPU, `"cuda-sim"` or `"cuda-sim:MODEL"` for one that this machine
     * simulates, as `tiled_device_name` lists them, with `+tf32` or `+f32x3` after it for tensor cores; NULL for the CPU. An `isa` is the
     * CPU's alone. Read during the call.
     */
    const char *device;
} tiled_engine_options;

/**
 * How an operator is cut into tiles. The result does not depend on it, but for the last bits of weight gradients.
 */
typedef struct tiled_operator_options {
    /**
     * The size of the struct, as `tiled_operator_options_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * The most bytes that the call may take beside the tensors: windows, packed weights and partial sums; 0 for 64 MiB, or what the
     * smallest tiles take where that is more.
     */
    uint64_t memory_bytes;
    /**
     * Height and width of a tile of the operator's output, also where the call computes gradients; 0 for what the
     * memory allows. Larger than the output means the whole of it.
     */
    int64_t tile[2];
} tiled_operator_options;

/**
 * The attributes of a convolution; the kernel's extents are those of the weight. Pairs are height, then width.
 */
typedef struct tiled_conv2d {
    /**
     * The size of the struct, as `tiled_conv2d_init` sets it.
     */
    uint32_t struct_size;
    /**
     * One of `TILED_ACTIVATION_…`, applied after the bias by `tiled_conv2d_forward` alone.
     */
    int32_t activation;
    /**
     * The strides, 1 to 2^20.
     */
    int64_t stride[2];
    /**
     * The dilations, 1 to 2^20.
     */
    int64_t dilation[2];
    /**
     * The zeros before the first row and column, 0 to 2^20.
     */
    int64_t padding_before[2];
    /**
     * The zeros after the last row and column, 0 to 2^20.
     */
    int64_t padding_after[2];
    /**
     * The groups; divides the channels of input and output.
     */
    int64_t groups;
    /**
     * The slope of `TILED_ACTIVATION_LEAKY_RELU`.
     */
    double negative_slope;
} tiled_conv2d;

/**
 * The attributes of a pooling. Pairs are height, then width.
 */
typedef struct tiled_pool2d {
    /**
     * The size of the struct, as `tiled_pool2d_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Not zero where a last window that starts inside the input and ends outside counts.
     */
    int32_t ceil_mode;
    /**
     * Average pooling: not zero where padding counts in the divisor.
     */
    int32_t count_include_pad;
    /**
     * Zero.
     */
    int32_t reserved;
    /**
     * The extents of the window, 1 to 2^20.
     */
    int64_t kernel[2];
    /**
     * The strides, 1 to 2^20.
     */
    int64_t stride[2];
    /**
     * The dilations, 1 to 2^20; 1 for average pooling.
     */
    int64_t dilation[2];
    /**
     * The padding before the first row and column; at most half the window.
     */
    int64_t padding_before[2];
    /**
     * The padding after the last row and column; at most half the window.
     */
    int64_t padding_after[2];
} tiled_pool2d;

/**
 * A value of a network: an input or what a node makes. Inputs are 0, 1, …, nodes follow in the order of adding.
 */
typedef uint64_t tiled_value;

/**
 * What a run is to compute.
 */
typedef struct tiled_objective {
    /**
     * The size of the struct, as `tiled_objective_init` sets it.
     */
    uint32_t struct_size;
    /**
     * `TILED_MODE_EVAL` or `TILED_MODE_TRAIN`.
     */
    int32_t mode;
    /**
     * One of `TILED_LOSS_…`.
     */
    int32_t loss;
    /**
     * Not zero where the outputs are wanted.
     */
    int32_t outputs;
    /**
     * Not zero where the gradients with respect to the inputs are wanted.
     */
    int32_t grad_inputs;
    /**
     * Not zero where the gradients with respect to the parameters are wanted.
     */
    int32_t grad_params;
    /**
     * The channels of the target of a cross-entropy.
     */
    int64_t target_channels;
    /**
     * The seed of dropout.
     */
    uint64_t seed;
    /**
     * The class number that a cross-entropy ignores, negative or not, or `TILED_NO_IGNORE_INDEX`.
     */
    int64_t ignore_index;
    /**
     * The names of the inputs, parameters (`fc.weight`) and nodes (`fc`: all its parameters) whose gradients are wanted, of those that
     * `grad_inputs` and `grad_params` ask for; NULL for all. A name that ends with `*` stands for all that begin so. What no wanted gradient
     * needs is not computed, and a run takes as many sinks in `grad_inputs` of its `tiled_io` as inputs are wanted.
     */
    const char *const *wanted;
    /**
     * How many there are; not read where `wanted` is NULL.
     */
    size_t wanted_count;
    /**
     * The names of nodes, as above, that evaluate in `TILED_MODE_TRAIN`: batch norms use their running statistics and leave them as they
     * are, dropouts do nothing. May be NULL.
     */
    const char *const *evaluated;
    /**
     * How many there are; not read where `evaluated` is NULL.
     */
    size_t evaluated_count;
} tiled_objective;

/**
 * A source that a run reads in chunks.
 */
typedef struct tiled_chunks {
    /**
     * Which source it is, `TILED_CHUNKS_…`.
     */
    int32_t source;
    /**
     * The type of its elements, `TILED_DTYPE_…`.
     */
    int32_t dtype;
    /**
     * The number of the input or output, from 0.
     */
    size_t index;
    /**
     * Rows and columns of a chunk.
     */
    int64_t shape[2];
} tiled_chunks;

/**
 * What may be asked of a plan.
 */
typedef struct tiled_plan_options {
    /**
     * The size of the struct, as `tiled_plan_options_init` sets it.
     */
    uint32_t struct_size;
    /**
     * One of `TILED_HOLD_…`.
     */
    int32_t hold;
    /**
     * The most bytes that the run may hold; 0 for what can be had when the plan is made, `TILED_MEMORY_UNLIMITED` for any. More than a
     * GPU has is `TILED_STATUS_BUDGET`.
     */
    uint64_t memory_bytes;
    /**
     * Height and width of a tile of the first output; both 0 for what the planner or `grid` says.
     */
    int64_t tile[2];
    /**
     * Rows and columns of tiles; both 0 for what the planner or `tile` says.
     */
    int64_t grid[2];
    /**
     * The tiles that may run at a time; 0 for what the planner says.
     */
    uint32_t lanes;
    /**
     * The cores to plan for; 0 for the engine's threads.
     */
    uint32_t parallelism;
    /**
     * Bytes that the caller holds beside the run and that count towards the budget.
     */
    uint64_t resident_bytes;
    /**
     * Not zero where convolutions 3×3 of stride one, of one group with 16 channels and more, run by Winograd's
     * filtering, on a CPU dilated ones too: faster, the same bits for every tiling, other roundings than the sums. Kernels of gradients stay sums.
     */
    int32_t winograd;
    /**
     * The tensors that lie in memory without gaps, `TILED_IN_MEMORY_…` added up: kernels may read and write them there, and the plan then holds
     * no windows for them. What a run is given has to lie so.
     */
    uint32_t in_memory;
    /**
     * The sources that are read in chunks, read during the call; NULL for none. The plan has memory for decoded chunks, and what a
     * run is given has these.
     */
    const struct tiled_chunks *chunks;
    /**
     * As many.
     */
    size_t chunk_count;
    /**
     * Not zero where `tiled_executor_run` may let go of weights once they are packed, so that memory holds most of them once: they can no more be copied or
     * saved, and only executors of such plans that have packed them run with them. Weights are kept where gradients of them are wanted, or of outputs that come later, and on a GPU.
     */
    int32_t releases_weights;
    /**
     * Zero.
     */
    int32_t reserved;
} tiled_plan_options;

/**
 * What a plan states before it runs.
 */
typedef struct tiled_plan_summary {
    /**
     * The size of the struct, set by the caller to `sizeof(tiled_plan_summary)`.
     */
    uint32_t struct_size;
    /**
     * The element type, `TILED_DTYPE_…`.
     */
    int32_t dtype;
    /**
     * The most bytes that the run holds, with the `resident_bytes` of the options: a promise.
     */
    uint64_t peak_bytes;
    /**
     * The part of them for windows.
     */
    uint64_t windows_bytes;
    /**
     * The part of them for values kept whole.
     */
    uint64_t stores_bytes;
    /**
     * The part of them for parameters and their gradients.
     */
    uint64_t parameters_bytes;
    /**
     * The arithmetic, in floating-point operations.
     */
    double flops;
    /**
     * The part of it that an untiled run does not do.
     */
    double redundant_flops;
    /**
     * The time that the cost model predicts, in seconds.
     */
    double predicted_seconds;
    /**
     * The passes over the image.
     */
    uint64_t sweeps;
    /**
     * The steps of all passes, as progress counts them.
     */
    uint64_t steps;
    /**
     * The tiles that run at a time, at most.
     */
    uint64_t lanes;
    /**
     * The most bytes that the run was to hold; `TILED_MEMORY_UNLIMITED` for any.
     */
    uint64_t budget_bytes;
    /**
     * Who said so, `TILED_BUDGET_…`; 0 where this library has no number for it.
     */
    int32_t budget_source;
    /**
     * Zero.
     */
    int32_t reserved;
    /**
     * The part of the peak for decoded chunks.
     */
    uint64_t chunks_bytes;
    /**
     * How often chunks are read, at most.
     */
    uint64_t chunk_reads;
} tiled_plan_summary;

/**
 * Fills `window`, contiguous memory of the library, with the elements of `region` of every image and channel.
 *
 * The window's shape is N×C×rows×columns of the region; regions have any size within the tensor, may overlap, and come
 * again in another pass over the image. Returns 0, or another number to end the run with `TILED_STATUS_CALLBACK`. Called
 * from the executor's threads or the caller's, several at once unless `is_serial`. It must not throw. Executor and
 * weights of the run answer it with `TILED_STATUS_BUSY`; other handles can be used, but for operators and runs where it
 * is serial: while it waits for them its thread may come back to it.
 */
typedef int32_t (*tiled_read_fn)(void *user, struct tiled_region region, const struct tiled_tensor *window);

/**
 * Fills `chunk`, contiguous memory of the library of the source's dtype, with the elements of the chunk in this row and column of
 * chunks, of every image and channel.
 *
 * Its shape is N×C×`chunk_shape`, also where it reaches beyond the tensor: what lies there is never looked at. Returns 0, or
 * another number to end the run with `TILED_STATUS_CALLBACK`. Threads and calls of the library are those of `tiled_read_fn`.
 */
typedef int32_t (*tiled_read_chunk_fn)(void *user,
                                       int64_t row,
                                       int64_t column,
                                       const struct tiled_tensor *chunk);

/**
 * Where a run reads a tensor from: memory, or where `read` or `read_chunk` is not NULL a function.
 */
typedef struct tiled_source {
    /**
     * The size of the struct, as `tiled_source_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Not zero where calls of `read` must not overlap.
     */
    int32_t is_serial;
    /**
     * Memory, read during the run where `read` is NULL. Else only its dtype and shape count.
     */
    struct tiled_tensor tensor;
    /**
     * Fills a region, or NULL.
     */
    tiled_read_fn read;
    /**
     * Given back to `read`.
     */
    void *user;
    /**
     * What integers stand for, `TILED_NUMBERS_…`.
     */
    int32_t numbers;
    /**
     * Zero.
     */
    int32_t reserved;
    /**
     * Each value v becomes `(scale·v − mean)/std`, each step rounded to the type of the computation.
     */
    double scale;
    /**
     * One mean, or one for each channel, read during the call; NULL for none.
     */
    const double *mean;
    /**
     * 0, 1, or as many as channels.
     */
    size_t mean_count;
    /**
     * One deviation, or one for each channel, read during the call; NULL for none.
     */
    const double *std;
    /**
     * 0, 1, or as many as channels.
     */
    size_t std_count;
    /**
     * Fills a chunk, or NULL; then `read` is NULL, and of `tensor` the dtype, which may be any, and the shape count. Called from the plan's
     * memory for chunks, which `chunks` of `tiled_plan_options` asks for.
     */
    tiled_read_chunk_fn read_chunk;
    /**
     * Rows and columns of a chunk.
     */
    int64_t chunk_shape[2];
} tiled_source;

/**
 * Takes the elements of `region` of every image and channel from `window`, contiguous memory of the library that
 * lives until it returns.
 *
 * The window's shape is N×C×rows×columns of the region; the regions of a run are disjoint and are together the whole
 * tensor. Returns 0, or another number to end the run with `TILED_STATUS_CALLBACK`. Called from the executor's threads
 * or the caller's, several at once unless `is_serial`. It must not throw. Executor and weights of the run answer it with
 * `TILED_STATUS_BUSY`; other handles can be used, but for operators and runs where it is serial: while it waits for them
 * its thread may come back to it.
 */
typedef int32_t (*tiled_write_fn)(void *user, struct tiled_region region, const struct tiled_tensor *window);

/**
 * Hears that a run is over: `is_complete` is 1 where every region was written, 0 where the run failed before that.
 *
 * Called once a run, on the thread of the call, after the last `write`; not at all where an argument is refused before
 * anything is read. A result other than 0 ends the run with `TILED_STATUS_CALLBACK`. The sinks of a run that is complete
 * hear it one after the other, the outputs before the gradients, each in their order: where one returns another number
 * than 0, those before it have heard 1 although the run fails, and those after it hear 0.
 */
typedef int32_t (*tiled_end_fn)(void *user, int32_t is_complete);

/**
 * What memory of integers or 16 bits does not hold as it was. Values out of range become the nearer end of it.
 */
typedef struct tiled_changes {
    /**
     * The size of the struct, as `tiled_changes_init` sets it.
     */
    uint32_t struct_size;
    /**
     * The element type of the memory.
     */
    int32_t dtype;
    /**
     * The values written; 0 where the memory has the type of the computation.
     */
    uint64_t values;
    /**
     * Those out of range.
     */
    uint64_t cut;
    /**
     * Those that are no number, which integers hold as 0.
     */
    uint64_t nan;
    /**
     * Those in range that integers round, so that they are read back as another number.
     */
    uint64_t rounded;
    /**
     * The least of all.
     */
    double least;
    /**
     * The largest of all.
     */
    double largest;
} tiled_changes;

/**
 * Where a run writes a tensor to: memory, or where `write` is not NULL a function.
 */
typedef struct tiled_sink {
    /**
     * The size of the struct, as `tiled_sink_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Not zero where calls of `write` must not overlap.
     */
    int32_t is_serial;
    /**
     * Memory, written during the run where `write` is NULL. Else only its dtype and shape count.
     */
    struct tiled_tensor tensor;
    /**
     * Takes a region, or NULL.
     */
    tiled_write_fn write;
    /**
     * Hears the end of the run, or NULL.
     */
    tiled_end_fn end;
    /**
     * Given back to `write` and `end`.
     */
    void *user;
    /**
     * What integers stand for, `TILED_NUMBERS_…`.
     */
    int32_t numbers;
    /**
     * What is written: the values, or what is decided of them, `TILED_DECISION_…`.
     */
    int32_t decision;
    /**
     * The channels of the values that are decided of; the tensor itself has one where the largest is wanted, as many where not.
     */
    int64_t channels;
    /**
     * The threshold of `TILED_DECISION_ABOVE`.
     */
    double threshold;
    /**
     * Where memory of integers or 16 bits tells what it does not hold as it was, when it is whole; or NULL.
     */
    struct tiled_changes *changes;
} tiled_sink;

/**
 * Hears that `done` of `total` steps are done; returns 0, or another number to end the run with
 * `TILED_STATUS_CANCELLED`.
 *
 * Called between steps from the executor's threads or the caller's, several at once. It must not throw; executor and
 * weights of the run answer it with `TILED_STATUS_BUSY`, other handles can be used.
 */
typedef int32_t (*tiled_progress_fn)(void *user, uint64_t done, uint64_t total);

/**
 * Hears how far a run is.
 */
typedef struct tiled_progress {
    /**
     * The size of the struct, as `tiled_progress_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Hears a step, or NULL.
     */
    tiled_progress_fn step;
    /**
     * Given back to `step`.
     */
    void *user;
} tiled_progress;

/**
 * The tensors that a run reads and writes, in the order of the network. Arrays and what they point to are read
 * during the call.
 */
typedef struct tiled_io {
    /**
     * The size of the struct, as `tiled_io_init` sets it.
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * The inputs, `input_count` of them.
     */
    const struct tiled_source *inputs;
    /**
     * As many as the network has.
     */
    size_t input_count;
    /**
     * The target of the loss, or NULL.
     */
    const struct tiled_source *target;
    /**
     * The gradients with respect to the outputs, where the caller gives them.
     */
    const struct tiled_source *grad_outputs;
    /**
     * None, or as many as the network has outputs.
     */
    size_t grad_output_count;
    /**
     * Where the outputs go.
     */
    const struct tiled_sink *outputs;
    /**
     * None, or as many as the network has outputs.
     */
    size_t output_count;
    /**
     * Where the gradients with respect to the inputs go.
     */
    const struct tiled_sink *grad_inputs;
    /**
     * None, or as many as the network has inputs.
     */
    size_t grad_input_count;
    /**
     * Hears how far the run is, or NULL.
     */
    const struct tiled_progress *progress;
} tiled_io;

/**
 * What a run did.
 */
typedef struct tiled_report {
    /**
     * The size of the struct, set by the caller to `sizeof(tiled_report)`.
     */
    uint32_t struct_size;
    /**
     * Not zero where the objective has a loss with a value.
     */
    int32_t has_loss;
    /**
     * The loss; 0 without one.
     */
    double loss;
    /**
     * The time of the run, in seconds.
     */
    double seconds;
} tiled_report;

/**
 * An optimiser and its options, with PyTorch's names.
 */
typedef struct tiled_optimizer {
    /**
     * The size of the struct, as `tiled_optimizer_init` sets it.
     */
    uint32_t struct_size;
    /**
     * `TILED_OPTIMIZER_SGD` or `TILED_OPTIMIZER_ADAMW`.
     */
    int32_t kind;
    /**
     * The learning rate.
     */
    double learning_rate;
    /**
     * The weight decay.
     */
    double weight_decay;
    /**
     * SGD: the share of the last step that is kept.
     */
    double momentum;
    /**
     * SGD: the share of the gradient that momentum leaves out.
     */
    double dampening;
    /**
     * AdamW: what is kept of the averages of the gradient and of its square.
     */
    double betas[2];
    /**
     * AdamW: what is added to the denominator.
     */
    double eps;
    /**
     * SGD: not zero for Nesterov's momentum.
     */
    int32_t nesterov;
    /**
     * Zero.
     */
    int32_t reserved;
} tiled_optimizer;

/**
 * The call did what it says.
 */
#define TILED_STATUS_OK 0

/**
 * An argument has a value without a meaning.
 */
#define TILED_STATUS_INVALID_ARGUMENT 1

/**
 * A pointer that must not be NULL is.
 */
#define TILED_STATUS_NULL_POINTER 2

/**
 * A handle is not one: freed, never made, or no handle at all.
 */
#define TILED_STATUS_INVALID_HANDLE 3

/**
 * A handle of another kind than the function takes.
 */
#define TILED_STATUS_WRONG_HANDLE 4

/**
 * A size, coordinate or index outside its range.
 */
#define TILED_STATUS_OUT_OF_RANGE 5

/**
 * Shapes that do not fit each other.
 */
#define TILED_STATUS_SHAPE 6

/**
 * An element type other than the one wanted.
 */
#define TILED_STATUS_DTYPE 7

/**
 * No plan fits the memory budget; the message names the smallest that works.
 */
#define TILED_STATUS_BUDGET 8

/**
 * A file cannot be read or written.
 */
#define TILED_STATUS_IO 9

/**
 * A callback of the caller returned something else than zero.
 */
#define TILED_STATUS_CALLBACK 10

/**
 * The progress callback asked to stop.
 */
#define TILED_STATUS_CANCELLED 11

/**
 * Another thread, or a call further up this thread's stack, is using the handle.
 */
#define TILED_STATUS_BUSY 12

/**
 * An earlier call panicked while it changed the handle; it can only be freed.
 */
#define TILED_STATUS_POISONED 13

/**
 * A defect of the library: it panicked, which was caught.
 */
#define TILED_STATUS_PANIC 14

/**
 * What is asked is not supported by this build or this CPU.
 */
#define TILED_STATUS_UNSUPPORTED 15

/**
 * The buffer is too small for the text; ask for its length with a capacity of zero.
 */
#define TILED_STATUS_BUFFER_TOO_SMALL 16

/**
 * There is not enough memory.
 */
#define TILED_STATUS_OUT_OF_MEMORY 17

/**
 * A network that cannot be built: an unknown operator, a missing operand, channels that do not fit.
 */
#define TILED_STATUS_NETWORK 18

/**
 * There is nothing of this name.
 */
#define TILED_STATUS_NOT_FOUND 19

/**
 * A training step whose loss, gradients or parameters would not be finite; the parameters are as before it.
 */
#define TILED_STATUS_NOT_FINITE 20

/**
 * A device did not do what it was asked; the message has what it says.
 */
#define TILED_STATUS_DEVICE 21

/**
 * The device is not there: no driver, none of this number, or no C++ compiler for a simulated one; the message says which.
 */
#define TILED_STATUS_NO_DEVICE 22

/**
 * This build of the library was made without devices of this kind.
 */
#define TILED_STATUS_LEFT_OUT 23

/**
 * A tensor lies on another device than the one that would have to read or write it.
 */
#define TILED_STATUS_OTHER_DEVICE 24

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that runs, `major·2^16 + minor·2^8 + patch`; compare it with the header's.
 *
 * Threads: any.
 */
uint32_t tiled_version(void);

/**
 * The version as text, `"0.1.0"`. Static, ended by a NUL; do not free it. Threads: any.
 */
const char *tiled_version_string(void);

/**
 * The version, the target and the best instruction set of this CPU, on one line:
 * `"tiled 0.1.0, x86_64-linux, avx512"`. Static, ended by a NUL; do not free it. Threads: any.
 */
const char *tiled_build_info(void);

/**
 * The number of handles that are not freed yet, of every kind: zero at the end of a program that leaks none.
 *
 * Threads: any.
 */
size_t tiled_live_handles(void);

/**
 * Copies the message of this thread's last failed call, in UTF-8 and ended by a NUL.
 *
 * Copies at most `capacity - 1` bytes of it, never a part of a character, and nothing where `capacity` is 0 or
 * `buffer` is NULL. Returns the length of the whole message in bytes without the NUL; 0 where no call of this
 * thread has failed. The message stays until the next failed call of this thread.
 *
 * Threads: any; each has a message of its own.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes.
 */
size_t tiled_last_error(char *buffer,
                        size_t capacity);

/**
 * The name of a status, `"TILED_STATUS_OK"` and so on; `"unknown"` for a number that this version does not know.
 *
 * The text is static; do not free it. Threads: any.
 */
const char *tiled_status_name(tiled_status status);

/**
 * Sets every field to its default: errors only, no function. `struct_size` is `sizeof(tiled_logger)`.
 *
 * Safety:
 * `logger` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_logger_init(struct tiled_logger *logger, uint32_t struct_size);

/**
 * Sends the library's messages to a function; NULL, the default, sends them nowhere.
 *
 * The struct is copied. `user` stays the caller's and must live until another logger is set and every call that
 * had begun has returned. On failure the logger is as before. Threads: any.
 *
 * Safety:
 * `logger` is NULL or points to a struct of as many bytes as its `struct_size` says, with a function that may be
 * called from any thread.
 */
tiled_status tiled_logger_set(const struct tiled_logger *logger);

/**
 * Sets every field to its default: no functions. `struct_size` is `sizeof(tiled_allocator)`.
 *
 * Safety:
 * `allocator` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_allocator_init(struct tiled_allocator *allocator, uint32_t struct_size);

/**
 * Takes large blocks from functions of the caller from now on; NULL, the default, takes them from the system.
 *
 * The struct is copied. A block goes back to the allocator that it came from, so `user` and the functions must live
 * until everything made meanwhile is freed. On failure (one function without the other) nothing changes.
 * Threads: any.
 *
 * Safety:
 * `allocator` is NULL or a struct with its size set, whose functions keep their promises.
 */
tiled_status tiled_allocator_set(const struct tiled_allocator *allocator);

/**
 * The inputs that the outputs `[a,b)` read, before clipping to the image: `[a·s − p, (b−1)·s − p + d·(k−1) + 1)`.
 *
 * Coordinates lie within ±2^40. On failure `inputs` is untouched. Threads: any.
 *
 * Safety:
 * `window` is NULL or can be read, `inputs` is NULL or can be written.
 */
tiled_status tiled_window_receptive(const struct tiled_window *window,
                                    struct tiled_interval outputs,
                                    struct tiled_interval *inputs);

/**
 * The outputs that read any of the inputs `[a,b)`, before clipping: `[ceil((a+p−e)/s), floor((b−1+p)/s) + 1)` with
 * `e = d·(k−1)`. It is what the gradient with respect to these inputs needs.
 *
 * Coordinates lie within ±2^40. On failure `outputs` is untouched. Threads: any.
 *
 * Safety:
 * `window` is NULL or can be read, `outputs` is NULL or can be written.
 */
tiled_status tiled_window_touched(const struct tiled_window *window,
                                  struct tiled_interval inputs,
                                  struct tiled_interval *outputs);

/**
 * The outputs all of whose taps lie in the inputs `[a,b)`: what can be computed from them alone.
 *
 * `receptive(O) ⊆ I` exactly if `O ⊆ computable(I)`. Coordinates lie within ±2^40. On failure `outputs` is
 * untouched. Threads: any.
 *
 * Safety:
 * `window` is NULL or can be read, `outputs` is NULL or can be written.
 */
tiled_status tiled_window_computable(const struct tiled_window *window,
                                     struct tiled_interval inputs,
                                     struct tiled_interval *outputs);

/**
 * One window that reads what `first`, followed by `second` on its outputs, reads.
 *
 * On failure (the composed stride exceeds 2^20, or padding or extent 2^40) `both` is untouched. Threads: any.
 *
 * Safety:
 * `first` and `second` are NULL or can be read, `both` is NULL or can be written.
 */
tiled_status tiled_window_then(const struct tiled_window *first,
                               const struct tiled_window *second,
                               struct tiled_window *both);

/**
 * The number of outputs over `extent` inputs with `padding_after` behind them.
 *
 * `floor((extent + p + padding_after − d·(k−1) − 1)/s) + 1`, or with `ceil_mode` not zero rounded up as in PyTorch.
 * `extent` is from 1 to 2^40, `padding_after` from 0 to 2^20. On failure `outputs` is untouched. Threads: any.
 *
 * Safety:
 * `window` is NULL or can be read, `outputs` is NULL or can be written.
 */
tiled_status tiled_window_outputs(const struct tiled_window *window,
                                  int64_t extent,
                                  int64_t padding_after,
                                  int32_t ceil_mode,
                                  int64_t *outputs);

/**
 * The region of the input that a region of the output reads, clipped to an image of `height`×`width`.
 *
 * `windows` holds two windows, rows then columns. On failure `inputs` is untouched. Threads: any.
 *
 * Safety:
 * `windows` is NULL or two windows can be read from it, `inputs` is NULL or can be written.
 */
tiled_status tiled_region_receptive(const struct tiled_window *windows,
                                    struct tiled_region outputs,
                                    int64_t height,
                                    int64_t width,
                                    struct tiled_region *inputs);

/**
 * The region of the output that reads any of a region of the input, clipped to an output of `height`×`width`.
 *
 * `windows` holds two windows, rows then columns. On failure `outputs` is untouched. Threads: any.
 *
 * Safety:
 * `windows` is NULL or two windows can be read from it, `outputs` is NULL or can be written.
 */
tiled_status tiled_region_touched(const struct tiled_window *windows,
                                  struct tiled_region inputs,
                                  int64_t height,
                                  int64_t width,
                                  struct tiled_region *outputs);

/**
 * The points in both regions. On failure `both` is untouched. Threads: any.
 *
 * Safety:
 * `both` is NULL or can be written.
 */
tiled_status tiled_region_intersect(struct tiled_region a, struct tiled_region b, struct tiled_region *both);

/**
 * The padding that a region wants around an image: the rows before and after it, then the columns.
 *
 * `excess` gets four numbers. On failure it is untouched. Threads: any.
 *
 * Safety:
 * `excess` is NULL or four numbers can be written to it.
 */
tiled_status tiled_region_excess(struct tiled_region region, struct tiled_region image, int64_t *excess);

/**
 * The grid of tiles of `tile_height`×`tile_width` over `height`×`width`; the last ones are ragged.
 *
 * Extents are from 1 to 2^40, at most 2^24 tiles an axis. The handle is the caller's, to be freed with
 * `tiled_grid_free`. On failure `grid` is untouched. Threads: any.
 *
 * Safety:
 * `grid` is NULL or can be written.
 */
tiled_status tiled_grid_new(int64_t height,
                            int64_t width,
                            int64_t tile_height,
                            int64_t tile_width,
                            struct tiled_grid **grid);

/**
 * The grid of `rows`×`cols` tiles, as even as integers allow, over `height`×`width`.
 *
 * Extents are from 1 to 2^40, counts from 1 to 2^24. The handle is the caller's, to be freed with
 * `tiled_grid_free`. On failure `grid` is untouched. Threads: any.
 *
 * Safety:
 * `grid` is NULL or can be written.
 */
tiled_status tiled_grid_new_from_counts(int64_t height,
                                        int64_t width,
                                        int64_t rows,
                                        int64_t cols,
                                        struct tiled_grid **grid);

/**
 * The numbers of rows and of columns of tiles. On failure `counts`, two numbers, is untouched. Threads: any.
 *
 * Safety:
 * `counts` is NULL or two numbers can be written to it.
 */
tiled_status tiled_grid_counts(const struct tiled_grid *grid, int64_t *counts);

/**
 * The tile in this row and column of tiles, in coordinates of the image. On failure `tile` is untouched.
 *
 * Threads: any.
 *
 * Safety:
 * `tile` is NULL or can be written.
 */
tiled_status tiled_grid_tile(const struct tiled_grid *grid,
                             int64_t row,
                             int64_t col,
                             struct tiled_region *tile);

/**
 * The same tiles carried over to an image of other extents, for a tensor that a stride has made smaller.
 *
 * The handle is the caller's. On failure `scaled` is untouched. Threads: any.
 *
 * Safety:
 * `scaled` is NULL or can be written.
 */
tiled_status tiled_grid_rescale(const struct tiled_grid *grid,
                                int64_t height,
                                int64_t width,
                                struct tiled_grid **scaled);

/**
 * Frees a grid; NULL does nothing. A handle freed twice is told by `TILED_STATUS_INVALID_HANDLE`. Threads: any.
 */
tiled_status tiled_grid_free(struct tiled_grid *grid);

/**
 * Sets every field to its default: `float`, no data, extents of zero, on the host. `struct_size` is `sizeof(tiled_tensor)`.
 *
 * Safety:
 * `tensor` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_tensor_init(struct tiled_tensor *tensor,
                               uint32_t struct_size);

/**
 * Describes contiguous memory as a tensor: `shape` holds four extents, NCHW.
 *
 * The memory stays the caller's. `struct_size` is `sizeof(tiled_tensor)`. On failure `tensor` is untouched.
 * Threads: any.
 *
 * Safety:
 * `shape` is NULL or four numbers can be read from it; `tensor` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_tensor_contiguous(int32_t dtype,
                                     void *data,
                                     const int64_t *shape,
                                     struct tiled_tensor *tensor,
                                     uint32_t struct_size);

/**
 * Describes a tensor of another framework, without a copy.
 *
 * The memory and the DLPack tensor stay the caller's: the description is valid until its deleter is called. It must
 * lie on the host or on a GPU (`kDLCPU`, `kDLCUDA`, or `kDLExtDev` for a simulated one) and have one to four axes; missing ones in front
 * become 1. The stream is NULL: set it to the one that the tensor was last written on, where that is not the default one.
 * `struct_size` is `sizeof(tiled_tensor)`. On failure `tensor` is untouched. Threads: any.
 *
 * Safety:
 * `managed` is NULL or a DLPack tensor; `tensor` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_tensor_from_dlpack(const struct DLManagedTensor *managed,
                                      struct tiled_tensor *tensor,
                                      uint32_t struct_size);

/**
 * As `tiled_tensor_from_dlpack`, for DLPack since version 1. A tensor of another major version is refused with
 * `TILED_STATUS_UNSUPPORTED`.
 *
 * Safety:
 * `managed` is NULL or a DLPack tensor; `tensor` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_tensor_from_dlpack_versioned(const struct DLManagedTensorVersioned *managed,
                                                struct tiled_tensor *tensor,
                                                uint32_t struct_size);

/**
 * Offers memory of the caller, on the host or on a GPU, to another framework as a DLPack tensor of four axes, without a copy.
 *
 * The struct is that from before version 1, which `at::fromDLPack` and most consumers take. The consumer calls the
 * tensor's `deleter` once; it calls `release(user)`, which may be NULL, from whatever thread that is, and frees what this
 * function allocated. Until then the memory must stay. On failure `managed` is untouched and `release` is not called.
 * Threads: any.
 *
 * Safety:
 * `tensor` is NULL or a tensor; `release` may be called once from any thread; `managed` is NULL or can be written.
 */
tiled_status tiled_tensor_to_dlpack(const struct tiled_tensor *tensor,
                                    void (*release)(void *user),
                                    void *user,
                                    struct DLManagedTensor **managed);

/**
 * As `tiled_tensor_to_dlpack`, for consumers of DLPack since version 1.
 *
 * Safety:
 * `tensor` is NULL or a tensor; `release` may be called once from any thread; `managed` is NULL or can be written.
 */
tiled_status tiled_tensor_to_dlpack_versioned(const struct tiled_tensor *tensor,
                                              void (*release)(void *user),
                                              void *user,
                                              struct DLManagedTensorVersioned **managed);

/**
 * The number of devices in the list: the CPU first, then the GPUs or why there are none, then those that can be simulated.
 *
 * The list is made by the first call that asks for it, and stays. On failure `count` is untouched. Threads: any.
 *
 * Safety:
 * `count` is NULL or can be written.
 */
tiled_status tiled_device_count(size_t *count);

/**
 * What a device of the list is, in numbers. `struct_size` is `sizeof(tiled_device)`.
 *
 * On failure `device` is untouched. Threads: any.
 *
 * Safety:
 * `device` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_device_describe(size_t index, struct tiled_device *device, uint32_t struct_size);

/**
 * The name of a device of the list, as `device` of `tiled_engine_options` takes it: UTF-8, ended by a NUL.
 *
 * With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
 * Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_device_name(size_t index, char *buffer, size_t capacity, size_t *length);

/**
 * What a device of the list is, in words, or why it is not there; as `tiled_device_name`.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_device_text(size_t index, char *buffer, size_t capacity, size_t *length);

/**
 * Sets every field to its default: the CPU, a thread per core, the best instruction set.
 * `struct_size` is `sizeof(tiled_engine_options)`.
 *
 * Safety:
 * `options` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_engine_options_init(struct tiled_engine_options *options, uint32_t struct_size);

/**
 * Makes an engine; `options` may be NULL for the defaults.
 *
 * A device that is not there is `TILED_STATUS_NO_DEVICE`, one of a kind that this build was made without `TILED_STATUS_LEFT_OUT`, and a
 * name of none `TILED_STATUS_NOT_FOUND`. What is opened of a GPU stays open as long as the program runs.
 *
 * The handle is the caller's, to be freed with `tiled_engine_free`. On failure `engine` is untouched. Threads: any.
 *
 * Safety:
 * `options` is NULL or a struct with its size set; `engine` is NULL or can be written.
 */
tiled_status tiled_engine_new(const struct tiled_engine_options *options,
                              struct tiled_engine **engine);

/**
 * The name of the backend with its instruction set or its GPU, as `"cpu-avx512"`: UTF-8, ended by a NUL.
 *
 * With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
 * Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_engine_name(const struct tiled_engine *engine,
                               char *buffer,
                               size_t capacity,
                               size_t *length);

/**
 * The number of threads. On failure `threads` is untouched. Threads: any.
 *
 * Safety:
 * `threads` is NULL or can be written.
 */
tiled_status tiled_engine_threads(const struct tiled_engine *engine, uint32_t *threads);

/**
 * Frees an engine; NULL does nothing. Plans and executors made with it stay. Threads: any.
 */
tiled_status tiled_engine_free(struct tiled_engine *engine);

/**
 * Sets every field to its default: tiles of 64 MiB. `struct_size` is `sizeof(tiled_operator_options)`.
 *
 * Safety:
 * `options` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_operator_options_init(struct tiled_operator_options *options, uint32_t struct_size);

/**
 * Sets every field to PyTorch's default: stride 1, dilation 1, no padding, one group, no activation.
 * `struct_size` is `sizeof(tiled_conv2d)`.
 *
 * Safety:
 * `conv` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_conv2d_init(struct tiled_conv2d *conv, uint32_t struct_size);

/**
 * The shape of a convolution's output: `floor((H + before + after − d·(kh−1) − 1)/s) + 1` rows, columns alike.
 *
 * `input_shape` (NCHW), `weight_shape` (OIHW) and `output_shape` (NCHW) hold four extents each. On failure
 * `output_shape` is untouched. Threads: any.
 *
 * Safety:
 * `conv` is NULL or a struct with its size set; the shapes are NULL or hold four numbers.
 */
tiled_status tiled_conv2d_output_shape(const struct tiled_conv2d *conv,
                                       const int64_t *input_shape,
                                       const int64_t *weight_shape,
                                       int64_t *output_shape);

/**
 * `output = activation(conv2d(input, weight) + bias)`, tile by tile.
 *
 * `input` is N×C×H×W, `weight` O×(C/groups)×kh×kw, `bias` 1×O×1×1 or NULL, and `output` of the shape that
 * `tiled_conv2d_output_shape` gives; all of one element type, all memory of the caller. `options` may be NULL.
 * The same bits whatever the tiles are. `output` is written only where every check has passed; after
 * `TILED_STATUS_PANIC` it may be in part. Threads: `engine` is used by one call at a time.
 *
 * Safety:
 * Structs are NULL or have their size set, and tensors describe memory that can be read, `output` written.
 */
tiled_status tiled_conv2d_forward(struct tiled_engine *engine,
                                  const struct tiled_conv2d *conv,
                                  const struct tiled_operator_options *options,
                                  const struct tiled_tensor *input,
                                  const struct tiled_tensor *weight,
                                  const struct tiled_tensor *bias,
                                  const struct tiled_tensor *output);

/**
 * The gradient of a convolution with respect to its input: `grad_input` from `grad_output` and `weight`.
 *
 * Shapes as in `tiled_conv2d_forward`; the activation is ignored. `options` may be NULL. The same bits whatever
 * the tiles are. `grad_input` is written only where every check has passed; after `TILED_STATUS_PANIC` it may be in
 * part. Threads: `engine` is used by one call at a time.
 *
 * Safety:
 * Structs are NULL or have their size set, and tensors describe memory that can be read, `grad_input` written.
 */
tiled_status tiled_conv2d_backward_input(struct tiled_engine *engine,
                                         const struct tiled_conv2d *conv,
                                         const struct tiled_operator_options *options,
                                         const struct tiled_tensor *grad_output,
                                         const struct tiled_tensor *weight,
                                         const struct tiled_tensor *grad_input);

/**
 * The gradients of a convolution with respect to its weight and, where `grad_bias` is not NULL, its bias.
 *
 * Shapes as in `tiled_conv2d_forward`; the activation is ignored. `options` may be NULL. Results do not depend on the number of threads; other tiles agree within rounding of the sum. On
 * failure nothing is written. Threads: `engine` is used by one call at a time.
 *
 * Safety:
 * Structs are NULL or have their size set, and tensors describe memory that can be read, the gradients written.
 */
tiled_status tiled_conv2d_backward_weight(struct tiled_engine *engine,
                                          const struct tiled_conv2d *conv,
                                          const struct tiled_operator_options *options,
                                          const struct tiled_tensor *input,
                                          const struct tiled_tensor *grad_output,
                                          const struct tiled_tensor *grad_weight,
                                          const struct tiled_tensor *grad_bias);

/**
 * Sets every field to its default: windows of 2×2 with stride 2, no padding, which counts where there is some.
 * `struct_size` is `sizeof(tiled_pool2d)`.
 *
 * Safety:
 * `pool` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_pool2d_init(struct tiled_pool2d *pool,
                               uint32_t struct_size);

/**
 * The shape of a pooling's output. `input_shape` and `output_shape` (NCHW) hold four extents each.
 *
 * On failure `output_shape` is untouched. Threads: any.
 *
 * Safety:
 * `pool` is NULL or a struct with its size set; the shapes are NULL or hold four numbers.
 */
tiled_status tiled_pool2d_output_shape(const struct tiled_pool2d *pool,
                                       const int64_t *input_shape,
                                       int64_t *output_shape);

/**
 * The maximum of each window of `input`; padding is never chosen, NaN wins.
 *
 * `input` is N×C×H×W and `output` of the shape that `tiled_pool2d_output_shape` gives, of one element type, memory of
 * the caller. `options` may be NULL. The same bits whatever the tiles are. `output` is written only where every check
 * has passed; after `TILED_STATUS_PANIC` it may be in part. Threads: `engine` is used by one call at a time.
 *
 * Safety:
 * Structs are NULL or have their size set, and tensors describe memory that can be read, `output` written.
 */
tiled_status tiled_max_pool2d_forward(struct tiled_engine *engine,
                                      const struct tiled_pool2d *pool,
                                      const struct tiled_operator_options *options,
                                      const struct tiled_tensor *input,
                                      const struct tiled_tensor *output);

/**
 * The mean of each window of `input`; see `count_include_pad` for the divisor.
 *
 * Arguments and promises as `tiled_max_pool2d_forward`.
 *
 * Safety:
 * As `tiled_max_pool2d_forward`.
 */
tiled_status tiled_avg_pool2d_forward(struct tiled_engine *engine,
                                      const struct tiled_pool2d *pool,
                                      const struct tiled_operator_options *options,
                                      const struct tiled_tensor *input,
                                      const struct tiled_tensor *output);

/**
 * The gradient of maximum pooling: each element of `grad_output` goes to the first maximum, in row-major order, of
 * its window of `input`, and `grad_input` sums what it gets.
 *
 * `input` and `grad_input` are N×C×H×W, `grad_output` of the output's shape. `options` may be NULL. Other promises as `tiled_max_pool2d_forward`.
 *
 * Safety:
 * Structs are NULL or have their size set, and tensors describe memory that can be read, `grad_input` written.
 */
tiled_status tiled_max_pool2d_backward(struct tiled_engine *engine,
                                       const struct tiled_pool2d *pool,
                                       const struct tiled_operator_options *options,
                                       const struct tiled_tensor *grad_output,
                                       const struct tiled_tensor *input,
                                       const struct tiled_tensor *grad_input);

/**
 * The gradient of average pooling: each element of `grad_output`, divided by its divisor, goes to its whole window.
 *
 * `grad_input` is N×C×H×W, `grad_output` of the output's shape. `options` may be NULL. Other promises as `tiled_max_pool2d_forward`.
 *
 * Safety:
 * As `tiled_max_pool2d_backward`.
 */
tiled_status tiled_avg_pool2d_backward(struct tiled_engine *engine,
                                       const struct tiled_pool2d *pool,
                                       const struct tiled_operator_options *options,
                                       const struct tiled_tensor *grad_output,
                                       const struct tiled_tensor *grad_input);

/**
 * Makes a network without inputs and nodes.
 *
 * The handle is the caller's, to be freed with `tiled_graph_free`. On failure `graph` is untouched. Threads: any.
 *
 * Safety:
 * `graph` is NULL or can be written.
 */
tiled_status tiled_graph_new(struct tiled_graph **graph);

/**
 * Makes the network of a text of `length` bytes in the JSON network format.
 *
 * The text is read during the call. The handle is the caller's, to be freed with `tiled_graph_free`. On failure
 * (`TILED_STATUS_NETWORK`, the message names the layer and the key) `graph` is untouched. Threads: any.
 *
 * Safety:
 * `json` is NULL or `length` bytes can be read from it; `graph` is NULL or can be written.
 */
tiled_status tiled_graph_from_json(const char *json,
                                   size_t length,
                                   struct tiled_graph **graph);

/**
 * Makes a built-in network: `"vgg16"`, `"unet"`, `"resnet18"`, …
 *
 * The handle is the caller's, to be freed with `tiled_graph_free`. On failure (`TILED_STATUS_NOT_FOUND`, the message
 * names those that there are) `graph` is untouched. Threads: any.
 *
 * Safety:
 * `name` is NULL or a text ended by a NUL; `graph` is NULL or can be written.
 */
tiled_status tiled_graph_builtin(const char *name,
                                 struct tiled_graph **graph);

/**
 * Frees a network; NULL does nothing. Plans and weights made for it stay. Threads: any.
 */
tiled_status tiled_graph_free(struct tiled_graph *graph);

/**
 * Adds an input with so many channels; all inputs come before the first node.
 *
 * `name` is unique and not empty, nor is a part of it before, after or between dots. On failure the network and `value` are
 * untouched.
 * Threads: one call at a time.
 *
 * Safety:
 * `name` is NULL or a text ended by a NUL; `value` is NULL or can be written.
 */
tiled_status tiled_graph_add_input(struct tiled_graph *graph,
                                   const char *name,
                                   int64_t channels,
                                   tiled_value *value);

/**
 * Adds an operator over `count` values that stand before it.
 *
 * `op` and the attributes are those of the network format: `"conv2d"` with
 * `{"out_channels": 16, "kernel_size": 3, "padding": 1}`; `{…, "weight": "conv1.weight"}` reads that parameter of a node before
 * it. `attributes` is a JSON object, or NULL for none. The name of the node is as that of an input, and not that of a
 * parameter either. On failure the network and `value` are untouched. Threads: one call at a time.
 *
 * Safety:
 * The texts are NULL or ended by a NUL; `inputs` is NULL or `count` values can be read from it; `value` is NULL or can
 * be written.
 */
tiled_status tiled_graph_add_node(struct tiled_graph *graph,
                                  const char *name,
                                  const char *op,
                                  const char *attributes,
                                  const tiled_value *inputs,
                                  size_t count,
                                  tiled_value *value);

/**
 * Sets the outputs, `count` values, each once.
 *
 * On failure the network is untouched. Threads: one call at a time.
 *
 * Safety:
 * `outputs` is NULL or `count` values can be read from it.
 */
tiled_status tiled_graph_set_outputs(struct tiled_graph *graph, const tiled_value *outputs, size_t count);

/**
 * The value of this name. On failure (`TILED_STATUS_NOT_FOUND`) `value` is untouched. Threads: any.
 *
 * Safety:
 * `name` is NULL or a text ended by a NUL; `value` is NULL or can be written.
 */
tiled_status tiled_graph_value(const struct tiled_graph *graph, const char *name, tiled_value *value);

/**
 * The value that is output `index` of the network. On failure (`TILED_STATUS_OUT_OF_RANGE`) `value` is untouched.
 *
 * Threads: any.
 *
 * Safety:
 * `value` is NULL or can be written.
 */
tiled_status tiled_graph_output(const struct tiled_graph *graph,
                                size_t index,
                                tiled_value *value);

/**
 * The name of a value, which is that of its input or node: UTF-8, ended by a NUL.
 *
 * With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
 * Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_graph_name(const struct tiled_graph *graph,
                              tiled_value value,
                              char *buffer,
                              size_t capacity,
                              size_t *length);

/**
 * The channels of a value. On failure `channels` is untouched. Threads: any.
 *
 * Safety:
 * `channels` is NULL or can be written.
 */
tiled_status tiled_graph_channels(const struct tiled_graph *graph, tiled_value value, int64_t *channels);

/**
 * The numbers of inputs, of nodes and of outputs. On failure `counts`, three numbers, is untouched. Threads: any.
 *
 * Safety:
 * `counts` is NULL or three numbers can be written to it.
 */
tiled_status tiled_graph_counts(const struct tiled_graph *graph,
                                size_t *counts);

/**
 * The network in the JSON network format, every attribute written out: UTF-8, ended by a NUL.
 *
 * With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
 * Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_graph_to_json(const struct tiled_graph *graph,
                                 char *buffer,
                                 size_t capacity,
                                 size_t *length);

/**
 * The shape (NCHW) that a value has for `count` inputs of these shapes, four extents each, one after another.
 *
 * On failure `shape` is untouched. Threads: any.
 *
 * Safety:
 * `input_shapes` is NULL or `4·count` numbers can be read from it; `shape` is NULL or four can be written to it.
 */
tiled_status tiled_graph_shape(const struct tiled_graph *graph,
                               const int64_t *input_shapes,
                               size_t count,
                               tiled_value value,
                               int64_t *shape);

/**
 * Makes the parameters that training starts from, distributed as in PyTorch and determined by `seed` and names alone.
 *
 * `dtype` is `TILED_DTYPE_F32` or `TILED_DTYPE_F64`. The handle is the caller's, to be freed with
 * `tiled_weights_free`. On failure `weights` is untouched. Threads: any.
 *
 * Safety:
 * `weights` is NULL or can be written.
 */
tiled_status tiled_weights_new(const struct tiled_graph *graph,
                               int32_t dtype,
                               uint64_t seed,
                               struct tiled_weights **weights);

/**
 * Reads the parameters of a network from a `.safetensors` file, converted to `dtype`.
 *
 * A parameter that several nodes read may stand under any of its names, or under several with the same bits.
 *
 * The handle is the caller's, to be freed with `tiled_weights_free`. On failure (a parameter is missing, unknown,
 * misshapen, or differs between two of its names; the file cannot be read) `weights` is untouched. Threads: any.
 *
 * Safety:
 * `path` is NULL or a text ended by a NUL; `weights` is NULL or can be written.
 */
tiled_status tiled_weights_load(const struct tiled_graph *graph,
                                int32_t dtype,
                                const char *path,
                                struct tiled_weights **weights);

/**
 * Writes the parameters to a `.safetensors` file, which stands under `path` only when it is complete. On failure what
 * stood there before stays.
 *
 * Threads: any.
 *
 * Safety:
 * `path` is NULL or a text ended by a NUL.
 */
tiled_status tiled_weights_save(const struct tiled_weights *weights,
                                const char *path);

/**
 * Copies parameters, for another thread or to go back to. The copy is the caller's. On failure `copy` is untouched.
 *
 * Threads: any.
 *
 * Safety:
 * `copy` is NULL or can be written.
 */
tiled_status tiled_weights_clone(const struct tiled_weights *weights,
                                 struct tiled_weights **copy);

/**
 * Frees parameters; NULL does nothing. Threads: any.
 */
tiled_status tiled_weights_free(struct tiled_weights *weights);

/**
 * The number of parameters (tensors). On failure `count` is untouched. Threads: any.
 *
 * Safety:
 * `count` is NULL or can be written.
 */
tiled_status tiled_weights_count(const struct tiled_weights *weights, size_t *count);

/**
 * The name of a parameter, as `"conv1.weight"`: UTF-8, ended by a NUL.
 *
 * With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
 * Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_weights_name(const struct tiled_weights *weights,
                                size_t index,
                                char *buffer,
                                size_t capacity,
                                size_t *length);

/**
 * The place of the parameter of this name. On failure (`TILED_STATUS_NOT_FOUND`) `index` is untouched. Threads: any.
 *
 * Safety:
 * `name` is NULL or a text ended by a NUL; `index` is NULL or can be written.
 */
tiled_status tiled_weights_find(const struct tiled_weights *weights,
                                const char *name,
                                size_t *index);

/**
 * The shape of a parameter: `rank` axes (at most 4), whose extents are the first of `shape`; the rest are 1.
 *
 * On failure `shape`, four numbers, and `rank` are untouched. Threads: any.
 *
 * Safety:
 * `shape` is NULL or four numbers can be written to it; `rank` is NULL or can be written.
 */
tiled_status tiled_weights_shape(const struct tiled_weights *weights,
                                 size_t index,
                                 int64_t *shape,
                                 size_t *rank);

/**
 * Replaces a parameter by `count` elements of the caller, in row-major order and of the weights' element type.
 *
 * The elements are copied. On failure (another count than the shape says) nothing changes.
 * Threads: one call at a time.
 *
 * Safety:
 * `data` is NULL or `count` elements can be read from it.
 */
tiled_status tiled_weights_set(struct tiled_weights *weights,
                               size_t index,
                               int32_t dtype,
                               const void *data,
                               size_t count);

/**
 * Copies a parameter's elements, `count` of them in row-major order, to memory of the caller.
 *
 * On failure (another count than the shape says; `TILED_STATUS_INVALID_ARGUMENT` where a run has let go of them, see `releases_weights` of
 * `tiled_plan_options`) nothing is written. Threads: any.
 *
 * Safety:
 * `data` is NULL or `count` elements can be written to it.
 */
tiled_status tiled_weights_get(const struct tiled_weights *weights,
                               size_t index,
                               int32_t dtype,
                               void *data,
                               size_t count);

/**
 * Sets every field to its default: the outputs in evaluation. `struct_size` is `sizeof(tiled_objective)`.
 *
 * Safety:
 * `objective` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_objective_init(struct tiled_objective *objective, uint32_t struct_size);

/**
 * Sets every field to its default: the fastest plan that the memory which can be had now holds. `struct_size` is `sizeof(tiled_plan_options)`.
 *
 * Safety:
 * `options` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_plan_options_init(struct tiled_plan_options *options,
                                     uint32_t struct_size);

/**
 * Plans runs of a network on an engine's backend: the least predicted time within the budget.
 *
 * `input_shapes` holds four extents (NCHW) for each of `count` inputs. `objective` and `options` may be NULL for the
 * outputs in evaluation and the fastest plan that the memory which can be had now holds. The handle is the caller's, to be freed with `tiled_plan_free`; it
 * depends on neither engine nor network afterwards. On failure (`TILED_STATUS_BUDGET`: the message names the smallest
 * budget that works) `plan` is untouched. Threads: any.
 *
 * Safety:
 * `input_shapes` is NULL or `4·count` numbers can be read from it; structs are NULL or have their size set, and what they point to can be read; `plan` is
 * NULL or can be written.
 */
tiled_status tiled_plan_new(const struct tiled_engine *engine,
                            const struct tiled_graph *graph,
                            int32_t dtype,
                            const int64_t *input_shapes,
                            size_t count,
                            const struct tiled_objective *objective,
                            const struct tiled_plan_options *options,
                            struct tiled_plan **plan);

/**
 * Frees a plan; NULL does nothing. Executors made with it stay. Threads: any.
 */
tiled_status tiled_plan_free(struct tiled_plan *plan);

/**
 * What the plan states: memory, arithmetic, steps. `struct_size` is `sizeof(tiled_plan_summary)`.
 *
 * On failure `summary` is untouched. Threads: any.
 *
 * Safety:
 * `summary` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_plan_summarise(const struct tiled_plan *plan,
                                  struct tiled_plan_summary *summary,
                                  uint32_t struct_size);

/**
 * The plan explained: passes, tiles, regions, memory and arithmetic. UTF-8, ended by a NUL.
 *
 * `format` is one of `TILED_EXPLAIN_…`. With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On
 * failure nothing is written. Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_plan_explain(const struct tiled_plan *plan,
                                int32_t format,
                                char *buffer,
                                size_t capacity,
                                size_t *length);

/**
 * The rows and columns of tiles and the number of nodes of a pass over the image.
 *
 * On failure `counts`, three numbers, is untouched. Threads: any.
 *
 * Safety:
 * `counts` is NULL or three numbers can be written to it.
 */
tiled_status tiled_plan_sweep(const struct tiled_plan *plan, size_t sweep, int64_t *counts);

/**
 * The name of a node of a pass: UTF-8, ended by a NUL.
 *
 * With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
 * Threads: any.
 *
 * Safety:
 * `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
 */
tiled_status tiled_plan_node_name(const struct tiled_plan *plan,
                                  size_t sweep,
                                  size_t node,
                                  char *buffer,
                                  size_t capacity,
                                  size_t *length);

/**
 * The region of a node's tensor that a tile needs, halo included and clipped to the image.
 *
 * On failure `region` is untouched. Threads: any.
 *
 * Safety:
 * `region` is NULL or can be written.
 */
tiled_status tiled_plan_region(const struct tiled_plan *plan,
                               size_t sweep,
                               size_t node,
                               int64_t row,
                               int64_t col,
                               struct tiled_region *region);

/**
 * Sets every field to its default: nothing. `struct_size` is `sizeof(tiled_io)`.
 *
 * Safety:
 * `io` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_io_init(struct tiled_io *io, uint32_t struct_size);

/**
 * Sets every field to its default: no function. `struct_size` is `sizeof(tiled_progress)`.
 *
 * Safety:
 * `progress` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_progress_init(struct tiled_progress *progress, uint32_t struct_size);

/**
 * Sets every field to zero but the size. `struct_size` is `sizeof(tiled_changes)`.
 *
 * Safety:
 * `changes` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_changes_init(struct tiled_changes *changes, uint32_t struct_size);

/**
 * Sets every field to its default: no memory, no function. `struct_size` is `sizeof(tiled_sink)`.
 *
 * Safety:
 * `sink` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_sink_init(struct tiled_sink *sink, uint32_t struct_size);

/**
 * Sets every field to its default: no memory, no function. `struct_size` is `sizeof(tiled_source)`.
 *
 * Safety:
 * `source` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_source_init(struct tiled_source *source, uint32_t struct_size);

/**
 * Makes an executor for a plan on an engine's backend, with as many threads of its own as the engine has.
 *
 * The engine need not be the one that the plan was made on, but its backend must be the same
 * (`TILED_STATUS_INVALID_ARGUMENT`). Allocates all memory that runs take, but for what `releases_weights` leaves to the first one. The handle is the caller's, to be freed with
 * `tiled_executor_free`; it depends on neither plan nor engine afterwards. On failure `executor` is untouched.
 * Threads: any.
 *
 * Safety:
 * `executor` is NULL or can be written.
 */
tiled_status tiled_executor_new(const struct tiled_engine *engine,
                                const struct tiled_plan *plan,
                                struct tiled_executor **executor);

/**
 * Runs the plan. Running statistics in `weights` are updated where the objective trains. Where the plan has `releases_weights`, those that `weights` still has are
 * packed first and let go of; weights that would have to be packed and are gone are `TILED_STATUS_INVALID_ARGUMENT`, before anything is let go of or written.
 *
 * `report` may be NULL, else its first field is `sizeof(tiled_report)`. Tensors of `io` have the plan's shapes and
 * element type. Where a check fails nothing is written; where a callback fails or cancels, sinks in memory may be
 * written in part and sinks with an `end` hear it; `report` is written on success alone.
 * Threads: `executor` and `weights` are used by one call at a time; callbacks run on the executor's threads or the
 * caller's.
 *
 * Safety:
 * Structs have their sizes set, arrays of `io` as many entries as it says, tensors describe memory that can be read or
 * written, and callbacks may be called from any thread and do not throw.
 */
tiled_status tiled_executor_run(struct tiled_executor *executor,
                                struct tiled_weights *weights,
                                const struct tiled_io *io,
                                struct tiled_report *report);

/**
 * Copies the gradient with respect to a parameter after a run: `count` elements of the plan's type.
 *
 * `index` is the parameter's place in the weights. On failure (`TILED_STATUS_NOT_FOUND`: the objective wants none)
 * nothing is written. Threads: any, not during a run.
 *
 * Safety:
 * `data` is NULL or `count` elements can be written to it.
 */
tiled_status tiled_executor_gradient(const struct tiled_executor *executor,
                                     size_t index,
                                     int32_t dtype,
                                     void *data,
                                     size_t count);

/**
 * Frees an executor; NULL does nothing. Threads: any.
 */
tiled_status tiled_executor_free(struct tiled_executor *executor);

/**
 * Runs the first half of a plan whose objective has `TILED_LOSS_GRAD_OUTPUT_LATER`: what the outputs need. `io` has the inputs and the
 * outputs, which are written and finished; running statistics in `weights` are updated. The gradients follow by
 * `tiled_executor_backward`, whatever else the executor runs before.
 *
 * A plan without a second half is `TILED_STATUS_INVALID_ARGUMENT`. The handle is the caller's, to be freed with `tiled_pending_free`; it holds
 * memory of its own (`tiled_pending_bytes`), and the executor takes as much again for the next run that begins before it
 * is used or freed. On failure `pending` is untouched. `report` and threads: as `tiled_executor_run`.
 *
 * Safety:
 * As `tiled_executor_run`; `pending` is NULL or can be written.
 */
tiled_status tiled_executor_forward(struct tiled_executor *executor,
                                    struct tiled_weights *weights,
                                    const struct tiled_io *io,
                                    struct tiled_pending **pending,
                                    struct tiled_report *report);

/**
 * Runs the second half: the gradients of a run that `tiled_executor_forward` began. `io` has the inputs, which are read again and
 * have to be the same, the gradients of the outputs, and the sinks of the gradients of the inputs.
 *
 * `pending` is used up, whatever this returns, but where the call is refused for a handle that is not one; it is still to be freed. A
 * run of another plan, one that is used up, and weights that have changed since are `TILED_STATUS_INVALID_ARGUMENT`. Gradients of
 * parameters are read by `tiled_executor_gradient`. `report` and threads: as `tiled_executor_run`.
 *
 * Safety:
 * As `tiled_executor_run`.
 */
tiled_status tiled_executor_backward(struct tiled_executor *executor,
                                     struct tiled_pending *pending,
                                     const struct tiled_weights *weights,
                                     const struct tiled_io *io,
                                     struct tiled_report *report);

/**
 * The bytes that a run holds while it waits for its gradients; 0 once they are computed. On failure `bytes` is untouched.
 * Threads: any.
 *
 * Safety:
 * `bytes` is NULL or can be written.
 */
tiled_status tiled_pending_bytes(const struct tiled_pending *pending,
                                 uint64_t *bytes);

/**
 * Frees a run and the memory that it holds; NULL does nothing. Threads: any.
 */
tiled_status tiled_pending_free(struct tiled_pending *pending);

/**
 * Sets every field to its default: SGD with learning rate 1e-3, no momentum, no weight decay.
 * `struct_size` is `sizeof(tiled_optimizer)`.
 *
 * Safety:
 * `optimizer` is NULL or has room for `struct_size` bytes.
 */
tiled_status tiled_optimizer_init(struct tiled_optimizer *optimizer, uint32_t struct_size);

/**
 * Makes a trainer for a plan whose objective has a loss and wants the gradients of parameters.
 *
 * As `tiled_executor_new`, the engine's backend must be that of the plan, and nothing of both is used afterwards. The
 * handle is the caller's, to be freed with `tiled_trainer_free`. On failure `trainer` is untouched. Threads: any.
 *
 * Safety:
 * `optimizer` is NULL or a struct with its size set; `trainer` is NULL or can be written.
 */
tiled_status tiled_trainer_new(const struct tiled_engine *engine,
                               const struct tiled_plan *plan,
                               const struct tiled_optimizer *optimizer,
                               struct tiled_trainer **trainer);

/**
 * One step: the loss and the gradients, then the optimiser on every parameter that has a gradient.
 *
 * Arguments and promises as `tiled_executor_run`; on failure all parameters are as before. Where the loss, a gradient or
 * what a parameter would become is NaN or infinite, the status is `TILED_STATUS_NOT_FINITE`; sinks are complete then.
 *
 * Safety:
 * As `tiled_executor_run`.
 */
tiled_status tiled_trainer_step(struct tiled_trainer *trainer,
                                struct tiled_weights *weights,
                                const struct tiled_io *io,
                                struct tiled_report *report);

/**
 * Sets the learning rate of the steps to come, a finite number of at least 0. On failure nothing changes.
 *
 * Threads: one call at a time.
 */
tiled_status tiled_trainer_set_learning_rate(struct tiled_trainer *trainer, double learning_rate);

/**
 * Copies the gradient of the last step with respect to a parameter; as `tiled_executor_gradient`.
 *
 * Safety:
 * `data` is NULL or `count` elements can be written to it.
 */
tiled_status tiled_trainer_gradient(const struct tiled_trainer *trainer,
                                    size_t index,
                                    int32_t dtype,
                                    void *data,
                                    size_t count);

/**
 * Frees a trainer; NULL does nothing. Threads: any.
 */
tiled_status tiled_trainer_free(struct tiled_trainer *trainer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TILED_H */
