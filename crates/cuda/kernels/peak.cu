// What a device reaches at best: multiply-adds of registers, which other kernels are measured by.
#include "device.cuh"

struct PeakArgs {
    void* to;
    int rounds, unused;
};

// Independent chains, as many as hide the latency of one; each round is a multiply-add of each.
constexpr int CHAINS = 16;

template <typename T>
DEVICE void multiply_adds(const PeakArgs& args) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    T sums[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) sums[i] = static_cast<T>(thread + i);
    const T factor = static_cast<T>(0.5), term = static_cast<T>(thread % 7);
#pragma unroll 8
    for (int round = 0; round < args.rounds; ++round) {
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) sums[i] = multiply_add(sums[i], factor, term);
    }
    T sum = T(0);
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) sum += sums[i];
    static_cast<T*>(args.to)[thread] = sum;
}

KERNEL(multiply_adds_f32, PeakArgs, 256) { multiply_adds<float>(args); }
KERNEL(multiply_adds_f64, PeakArgs, 256) { multiply_adds<double>(args); }
