/* The one function that compiled kernels call and the DSL's static runtime lacks: a CUDA error becomes a Python exception. */
#include <stdio.h>

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);

void CuteDSLRT_TVMFFISetRaisedCudaError(int code) {
  char text[64];
  snprintf(text, sizeof text, "CUDA error %d", code);
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", text);
}

void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(int code) { CuteDSLRT_TVMFFISetRaisedCudaError(code); }
