// The part of LiteRT's C interface that is called here, as LiteRT 2.1.6 to 2.3.0 have it.
//
// LiteRT's own headers are not in its wheels. Up to 2.1.5 some of these functions have other
// arguments under the same names; LiteRtCreateModelFromFd is missing there, so that a program on
// this library does not start with them.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

typedef int LiteRtStatus;  // 0 is success; an enum, so an int
typedef struct LiteRtEnvironmentT* LiteRtEnvironment;
typedef struct LiteRtModelT* LiteRtModel;
typedef struct LiteRtSignatureT* LiteRtSignature;
typedef struct LiteRtTensorT* LiteRtTensor;
typedef struct LiteRtOptionsT* LiteRtOptions;
typedef struct LiteRtOpaqueOptionsT* LiteRtOpaqueOptions;
typedef struct LiteRtCompiledModelT* LiteRtCompiledModel;
typedef struct LiteRtTensorBufferT* LiteRtTensorBuffer;

enum { kLiteRtAnyTypeInt = 2 };
enum { kLiteRtEnvOptionTagAutoRegisterAccelerators = 24, kLiteRtEnvOptionTagMinLoggerSeverity = 25 };
enum { kLiteRtLogSeverityError = 3 };
enum { kLiteRtHwAcceleratorCpu = 1 };
enum { kLiteRtElementTypeFloat32 = 1, kLiteRtElementTypeInt32 = 2 };
enum { kLiteRtTensorBufferTypeHostMemory = 1 };
enum { kLiteRtTensorBufferLockModeRead = 0, kLiteRtTensorBufferLockModeWrite = 1 };

typedef struct {
  int type;
  union {
    bool bool_value;
    int64_t int_value;
    double real_value;
    const char* str_value;
    const void* ptr_value;
  };
} LiteRtAny;

typedef struct {
  int tag;
  LiteRtAny value;
} LiteRtEnvOption;

typedef struct {
  unsigned int rank : 7;
  unsigned int has_strides : 1;
  int32_t dimensions[8];
  uint32_t strides[8];
} LiteRtLayout;

typedef struct {
  int element_type;
  LiteRtLayout layout;
} LiteRtRankedTensorType;

static_assert(sizeof(LiteRtAny) == 16 && sizeof(LiteRtEnvOption) == 24, "as LiteRT lays them out");
static_assert(sizeof(LiteRtLayout) == 68 && sizeof(LiteRtRankedTensorType) == 72,
              "as LiteRT lays them out");

LiteRtStatus LiteRtCreateEnvironment(int count, const LiteRtEnvOption* options,
                                     LiteRtEnvironment* environment);
void LiteRtDestroyEnvironment(LiteRtEnvironment environment);

LiteRtStatus LiteRtCreateModelFromFd(LiteRtEnvironment environment, int fd, size_t offset,
                                     size_t size, LiteRtModel* model);
void LiteRtDestroyModel(LiteRtModel model);
LiteRtStatus LiteRtGetNumModelSignatures(LiteRtModel model, size_t* count);
LiteRtStatus LiteRtGetModelSignature(LiteRtModel model, size_t index, LiteRtSignature* signature);
LiteRtStatus LiteRtGetSignatureKey(LiteRtSignature signature, const char** key);
LiteRtStatus LiteRtGetNumSignatureInputs(LiteRtSignature signature, size_t* count);
LiteRtStatus LiteRtGetNumSignatureOutputs(LiteRtSignature signature, size_t* count);
LiteRtStatus LiteRtGetSignatureInputName(LiteRtSignature signature, size_t index,
                                         const char** name);
LiteRtStatus LiteRtGetSignatureOutputName(LiteRtSignature signature, size_t index,
                                          const char** name);
LiteRtStatus LiteRtGetSignatureInputTensor(LiteRtSignature signature, const char* name,
                                           LiteRtTensor* tensor);
LiteRtStatus LiteRtGetSignatureOutputTensor(LiteRtSignature signature, const char* name,
                                            LiteRtTensor* tensor);
LiteRtStatus LiteRtGetRankedTensorType(LiteRtTensor tensor, LiteRtRankedTensorType* type);

LiteRtStatus LiteRtCreateOptions(LiteRtOptions* options);
void LiteRtDestroyOptions(LiteRtOptions options);
LiteRtStatus LiteRtSetOptionsHardwareAccelerators(LiteRtOptions options, int accelerators);
LiteRtStatus LiteRtCreateOpaqueOptions(const char* identifier, void* payload,
                                       void (*free_payload)(void*), LiteRtOpaqueOptions* options);
LiteRtStatus LiteRtAddOpaqueOptions(LiteRtOptions options,
                                    LiteRtOpaqueOptions opaque);  // takes `opaque` over

LiteRtStatus LiteRtCreateCompiledModel(LiteRtEnvironment environment, LiteRtModel model,
                                       LiteRtOptions options, LiteRtCompiledModel* compiled);
void LiteRtDestroyCompiledModel(LiteRtCompiledModel compiled);
LiteRtStatus LiteRtCompiledModelResizeInputTensor(LiteRtCompiledModel compiled, size_t signature,
                                                  size_t input, const int* dimensions,
                                                  size_t rank);
LiteRtStatus LiteRtGetCompiledModelOutputTensorLayouts(LiteRtCompiledModel compiled,
                                                       size_t signature, size_t count,
                                                       LiteRtLayout* layouts,
                                                       bool update_allocation);
LiteRtStatus LiteRtRunCompiledModel(LiteRtCompiledModel compiled, size_t signature,
                                    size_t input_count, LiteRtTensorBuffer* inputs,
                                    size_t output_count, LiteRtTensorBuffer* outputs);

LiteRtStatus LiteRtCreateManagedTensorBuffer(LiteRtEnvironment environment, int buffer_type,
                                             const LiteRtRankedTensorType* type, size_t bytes,
                                             LiteRtTensorBuffer* buffer);  // not zeroed
LiteRtStatus LiteRtLockTensorBuffer(LiteRtTensorBuffer buffer, void** memory, int mode);
LiteRtStatus LiteRtUnlockTensorBuffer(LiteRtTensorBuffer buffer);
void LiteRtDestroyTensorBuffer(LiteRtTensorBuffer buffer);
}
