// cublaslt.cc: cuBLASLt symbols, handles and algorithm choice.
#include "backend/cuda/gemm/cublaslt.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"
#include "core/library.h"

namespace spark::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint32_t kAlignment = 16;

// Numbers of the cuBLASLt ABI.
constexpr int kReal32F = 0, kReal16F = 2, kReal16BF = 14, kReal4F = 33;  // cudaDataType
constexpr int kCompute32F = 68;                                          // cublasComputeType_t
// cublasLtMatmulDescAttributes_t
constexpr int kTransposeA = 3, kScalesA = 17, kScalesB = 18, kScaleModeA = 31, kScaleModeB = 32;
constexpr int kMaxWorkspace = 1, kMinAlignmentA = 5;  // cublasLtMatmulPreferenceAttributes_t
constexpr int32_t kTransposed = 1;                    // cublasOperation_t
constexpr int32_t kBlocksOf16 = 1;                    // cublasLtMatmulMatrixScale_t: VEC16_UE4M3

using Opaque = struct Opaque_*;

struct Algorithm {
  uint64_t data[8];
};

struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct Api {
  const Library library{"libcublasLt.so.13", "libcublasLt.so.12"};
  std::string reason = library.reason();
  size_t (*version)() = nullptr;  // asked for also where the library is unusable
  int (*create)(Opaque* handle);
  int (*desc_create)(Opaque*, int compute_type, int scale_type);
  int (*desc_set)(Opaque, int attribute, const void*, size_t);
  int (*layout_create)(Opaque*, int type, uint64_t rows, uint64_t cols, int64_t stride);
  int (*preference_create)(Opaque*);
  int (*preference_set)(Opaque, int attribute, const void*, size_t);
  int (*heuristic)(Opaque handle, Opaque desc, Opaque a, Opaque b, Opaque c, Opaque d, Opaque preference,
                   int wanted, Heuristic* results, int* found);
  int (*matmul)(Opaque handle, Opaque desc, const void* alpha, const void* a, Opaque a_layout, const void* b,
                Opaque b_layout, const void* beta, const void* c, Opaque c_layout, void* d, Opaque d_layout,
                const Algorithm*, void* workspace, size_t workspace_bytes, CUstream);

  Api() {
    const auto require = [&](auto& function, const char* symbol) {
      if (reason.empty() && !library.bind(function, symbol)) reason = library.name() + " lacks " + symbol;
    };
    require(version, "cublasLtGetVersion");
    require(create, "cublasLtCreate");
    require(desc_create, "cublasLtMatmulDescCreate");
    require(desc_set, "cublasLtMatmulDescSetAttribute");
    require(layout_create, "cublasLtMatrixLayoutCreate");
    require(preference_create, "cublasLtMatmulPreferenceCreate");
    require(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    require(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    require(matmul, "cublasLtMatmul");
  }

  static const Api& get() {
    static const Api* api = new Api;  // leaked, as all drivers
    return *api;
  }
};

// What a shape needs. Descriptors live as long as the process.
struct Plan {
  bool usable = false;
  Opaque desc = nullptr, w = nullptr, a = nullptr, out = nullptr;
  Heuristic best{};
};

using Shape = std::tuple<DType, int64_t, int64_t, int64_t, int64_t, int64_t, bool>;

struct Handle {
  Opaque handle = nullptr;
  std::map<Shape, Plan> plans;
};

struct Handles {
  std::mutex preparing;  // one handle is created at a time; that can take long
  std::mutex mutex;      // guards `of`
  std::map<Device*, Handle> of;

  static Handles& get() {
    static Handles* handles = new Handles;
    return *handles;
  }
};

bool set(const Api& api, Opaque desc, int attribute, const auto& value) {
  return api.desc_set(desc, attribute, &value, sizeof value) == 0;
}

// The scales of the weight are those of the left operand, A.
bool set_scales(const Api& api, Opaque desc, const BlasProduct& product) {
  return set(api, desc, kScalesA, product.w_scales) && set(api, desc, kScalesB, product.a_scales);
}

// Row-major y = a · wᵀ is column-major yᵀ = w · aᵀ: w is the left operand. Row-major rows are columns there.
Plan make_plan(const Api& api, Opaque handle, const BlasProduct& product) {
  Plan plan;
  Opaque preference = nullptr;
  bool ok = api.desc_create(&plan.desc, kCompute32F, kReal32F) == 0;
  ok = ok && (!product.w_rows || set(api, plan.desc, kTransposeA, kTransposed));
  const bool fp4 = product.dtype == DType::kNVFP4;
  if (fp4) {
    ok = ok && set(api, plan.desc, kScaleModeA, kBlocksOf16) &&
         set(api, plan.desc, kScaleModeB, kBlocksOf16) && set_scales(api, plan.desc, product);
  }
  const int type = fp4 ? kReal4F : product.dtype == DType::kF16 ? kReal16F : kReal16BF;
  ok = ok && api.layout_create(&plan.w, type, product.w_rows ? product.depth : product.cols,
                               product.w_rows ? product.cols : product.depth, product.w_stride) == 0;
  ok = ok && api.layout_create(&plan.a, type, product.depth, product.rows, product.a_stride) == 0;
  ok = ok && api.layout_create(&plan.out, kReal32F, product.cols, product.rows, product.cols) == 0;
  ok = ok && api.preference_create(&preference) == 0;
  ok = ok && api.preference_set(preference, kMaxWorkspace, &kWorkspaceBytes, sizeof kWorkspaceBytes) == 0;
  for (int operand = 0; ok && operand < 4; ++operand) {
    ok = api.preference_set(preference, kMinAlignmentA + operand, &kAlignment, sizeof kAlignment) == 0;
  }
  int found = 0;
  plan.usable = ok &&
                api.heuristic(handle, plan.desc, plan.w, plan.a, plan.out, plan.out, preference, 1,
                              &plan.best, &found) == 0 &&
                found > 0 && plan.best.state == 0 && plan.best.workspace <= kWorkspaceBytes;
  return plan;
}

// cuBLASLt takes the alignment that its algorithm was chosen for on trust: at another address a store faults,
// which ruins the context.
bool is_aligned(const BlasProduct& product) {
  const void* const addresses[] = {product.a, product.w, product.out, product.a_scales, product.w_scales};
  return std::all_of(std::begin(addresses), std::end(addresses), is_blas_aligned);
}

bool disabled() {
  const char* wanted = std::getenv("DGX_SPARK_CUBLASLT");
  return wanted && std::string_view(wanted) == "0";
}

}  // namespace

CublasLtReport query_cublaslt() {
  const Api& api = Api::get();
  CublasLtReport report{api.reason, std::nullopt, std::nullopt};
  if (api.library.ok()) report.library = api.library.name();
  if (api.version) report.version = api.version();
  return report;
}

void prepare_cublaslt(Device& device) {
  if (disabled()) return;
  const Api& api = Api::get();
  if (!api.reason.empty()) return;
  Handles& handles = Handles::get();
  std::lock_guard preparing(handles.preparing);
  {
    std::lock_guard lock(handles.mutex);
    if (handles.of.count(&device)) return;
  }
  Opaque handle = nullptr;
  if (api.create(&handle) != 0) return;
  std::lock_guard lock(handles.mutex);
  handles.of[&device].handle = handle;
}

bool is_blas_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kAlignment == 0; }

bool cublaslt_product(const BlasProduct& product) {
  if (!is_aligned(product)) return false;
  Device& device = Device::current();
  Handles& handles = Handles::get();
  std::lock_guard lock(handles.mutex);
  const auto found = handles.of.find(&device);
  if (found == handles.of.end()) return false;
  const Api& api = Api::get();
  const Shape shape{product.dtype,    product.rows,     product.cols,  product.depth,
                    product.a_stride, product.w_stride, product.w_rows};
  auto [plan, is_new] = found->second.plans.try_emplace(shape);
  if (is_new) plan->second = make_plan(api, found->second.handle, product);
  if (!plan->second.usable) return false;
  const auto& [_, desc, w, a, out, best] = plan->second;
  const Scratch workspace(best.workspace);
  const float alpha = 1, beta = 0;
  if (product.dtype == DType::kNVFP4 && !set_scales(api, desc, product)) return false;
  const int status = api.matmul(found->second.handle, desc, &alpha, product.w, w, product.a, a, &beta,
                                product.out, out, product.out, out, &best.algorithm, workspace.as<void>(),
                                best.workspace, device.stream().handle());
  if (status != 0) plan->second.usable = false;
  return status == 0;
}

}  // namespace spark::cuda
