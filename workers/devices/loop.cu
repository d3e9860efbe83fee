// The closed loop round a step, on the device: what contract.py says, in two kernels. Compiled with --fmad=false, since every
// rounding must be that of contract.feedback in torch: products and sums apart, in the same order.

const int MOST = 8;    // tensors copied by one launch
const int THREADS = 1024;
const int PER_THREAD = 16;    // columns of a row that one thread can hold: rows of up to 16,384

struct Copies {
    const char* source[MOST];
    char* target[MOST];
    long long bytes[MOST];    // of one step's row
    int count;
};

// Row `from_step` of the sources (or their only row) to row `to_step` of the targets, by all threads of `blocks` blocks.
__device__ void copy_rows(const Copies& c, long long from_step, long long to_step, int block, int blocks) {
    long long first = (long long)block * blockDim.x + threadIdx.x, stride = (long long)blocks * blockDim.x;
    for (int i = 0; i < c.count; i++) {
        const char* source = c.source[i] + from_step * c.bytes[i];
        char* target = c.target[i] + to_step * c.bytes[i];
        if ((((long long)source | (long long)target | c.bytes[i]) & 15) == 0) {
            for (long long k = first; k < c.bytes[i] / 16; k += stride) ((int4*)target)[k] = ((const int4*)source)[k];
        } else {
            for (long long k = first; k < c.bytes[i]; k += stride) target[k] = source[k];
        }
    }
}

__device__ float widened(unsigned short value) { return __int_as_float((int)value << 16); }

__device__ unsigned short rounded(float value) {
    unsigned int bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Sum over the block of one value for each thread; every thread gets it. Modulo 2^64.
__device__ unsigned long long block_sum(unsigned long long value, unsigned long long* shared) {
    for (int far = 16; far; far >>= 1) value += __shfl_xor_sync(0xffffffffu, value, far);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = value;
    __syncthreads();
    unsigned long long total = 0;
    for (int warp = 0; warp < THREADS / 32; warp++) total += shared[warp];
    return total;
}

// Sum of the values of all threads before this one. Modulo 2^64.
__device__ unsigned long long sum_before(unsigned long long value, unsigned long long* shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned long long inclusive = value;
    for (int far = 1; far < 32; far <<= 1) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, inclusive, far);
        if (lane >= far) inclusive += other;
    }
    if (lane == 31) shared[warp] = inclusive;
    __syncthreads();
    unsigned long long before = 0;
    for (int other = 0; other < warp; other++) before += shared[other];
    return before + inclusive - value;
}

// Before the first step: x(0) is noise[0], schedules show their first row, and the counters are zero.
extern "C" __global__ void begin(long long* counters, Copies first) {
    if (blockIdx.x == 0 && threadIdx.x < 2) counters[threadIdx.x] = 0;
    copy_rows(first, 0, 0, blockIdx.x, gridDim.x);
}

// Behind each step t: outputs into row t of their histories, x(t + 1), and row t + 1 of the schedules. A block for each row of x, and
// more for the copies. counters[0] is t, counters[1] how many blocks have read it and are done.
extern "C" __global__ void __launch_bounds__(1024)
finish(const short* out, const long long* multipliers, const unsigned short* table, const unsigned short* noise, unsigned short* x,
       long long* counters, int rows, int hidden, long long capacity, float scale, Copies histories, Copies schedules) {
    __shared__ unsigned long long shared[THREADS / 32];
    long long t = *(volatile long long*)counters;
    bool goes_on = t + 1 < capacity;
    if (t < capacity && blockIdx.x >= rows) {
        copy_rows(histories, 0, t, blockIdx.x - rows, gridDim.x - rows);
        if (goes_on) copy_rows(schedules, t + 1, 0, blockIdx.x - rows, gridDim.x - rows);
    }
    if (goes_on && blockIdx.x < rows) {
        long long row = blockIdx.x;
        int each = (hidden + THREADS - 1) / THREADS, from = threadIdx.x * each;
        unsigned long long terms[PER_THREAD], own = 0;
        for (int i = 0; i < each; i++) {
            int k = from + i;
            terms[i] = k < hidden ? (unsigned long long)((long long)out[row * hidden + k] * multipliers[k]) : 0;
            own += terms[i];
        }
        unsigned long long prefix = sum_before(own, shared), mixed = 0;
        for (int i = 0; i < each; i++) {
            prefix += terms[i];
            if (from + i < hidden) {
                long long folded = (long long)prefix ^ ((long long)prefix >> 29);
                mixed += (unsigned long long)(folded * multipliers[from + i]);
            }
        }
        long long hash = (long long)block_sum(mixed, shared);
        const unsigned short* chosen[5];
        for (int i = 0; i < 5; i++) chosen[i] = table + ((hash >> (4 + 12 * i)) & 4095) * hidden;
        const unsigned short* fresh = noise + ((t + 1) * rows + row) * hidden;
        for (int k = threadIdx.x; k < hidden; k += THREADS) {
            float added = widened(chosen[0][k]);
            for (int i = 1; i < 5; i++) added = __fadd_rn(added, widened(chosen[i][k]));
            x[row * hidden + k] = rounded(__fadd_rn(widened(fresh[k]), __fmul_rn(added, scale)));
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd((unsigned long long*)&counters[1], 1ull) == gridDim.x - 1) {
        counters[1] = 0;
        counters[0] = t + 1;
    }
}
