// Stock activation kernel: out[i] = x[i] * sigmoid(x[i]).
__global__ void silu(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] / (1.0f + __expf(-x[i]));
}
