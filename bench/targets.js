// targets.js: all performance targets of the project, and the rows that measure them.

/** @import { Target } from './goals.js' */

/** Those of others; two are made here. */
const realModels = /^(?!transformer|driving_policy)/

/** @type {Omit<Target, 'device'>[]} */
const cpu = [
  {
    name: 'f32 GEMM over onnxruntime-node, six shapes',
    goal: '>= 1 x',
    rows: { name: 'gemm', dtype: /^f32$/ },
    needs: 'avx512',
  },
  {
    name: 'bf16 GEMM over onnxruntime-node in f32, six shapes',
    goal: '>= 1 x',
    rows: { name: 'gemm', dtype: /^bf16$/ },
    needs: 'amx',
  },
  {
    name: 'bf16 GEMM, T=512 4096x4096',
    goal: '>= 1500 GFLOP/s',
    rows: { name: 'gemm T512', dtype: /^bf16$/ },
    needs: 'amx',
  },
  {
    name: 'fp8 weights/s, T=1 cold, over the faster f32',
    goal: '>= 1.8 x',
    rows: { name: 'gemv cold', dtype: /^f8_e4m3$/ },
  },
  {
    name: 'NVFP4 weights/s, T=1 cold, over the faster f32',
    goal: '>= 2.5 x',
    rows: { name: 'gemv cold', dtype: /^nvfp4$/ },
  },
  {
    name: 'DoRA forward, gain cached, over the base product: 4096x4096 r16 T512',
    goal: '<= 1.10 x',
    rows: { name: 'dora cached', shape: /^T512 / },
  },
  {
    name: 'DoRA forward, gain recomputed, over the base product: 4096x4096 r16 T512',
    goal: '<= 1.15 x',
    rows: { name: 'dora recomputed', shape: /^T512 / },
  },
  {
    name: 'DoRA forward, T=1 cold, over the base product: 4096x4096 r16',
    goal: '<= 1.15 x',
    rows: { name: 'dora cached', shape: /^T1 / },
  },
  {
    name: 'DoRA norm over the larger of one read of W and GEMM at T=16: 4096x4096 r16',
    goal: '<= 1.2 x',
    rows: { name: 'dora norm cold', shape: / r16$/ },
  },
  {
    name: 'DoRA norm over the larger of one read of W and GEMM at T=64: 4096x4096 r64',
    goal: '<= 1.2 x',
    rows: { name: 'dora norm cold', shape: / r64$/ },
  },
  {
    name: 'DoRA merge over one copy of W: 4096x4096 r16, f32, bf16 and f16',
    goal: '<= 2.5 x',
    of: 'worst',
    rows: { name: 'dora merge cold' },
  },
  {
    name: 'DoRA forward and backward over the same without norm and magnitude: 4096x4096 r16 T512',
    goal: '<= 1.15 x',
    rows: { name: 'dora step' },
  },
  {
    name: 'NVFP4 quantize (modelopt, bf16, amax given), one thread',
    goal: '>= 2 Gelement/s',
    rows: { name: 'nvfp4 quantize', shape: / 1 thread$/ },
    needs: 'avx512',
  },
  {
    name: 'NVFP4 dequantize, one thread',
    goal: '>= 3 Gelement/s',
    rows: { name: 'nvfp4 dequantize', shape: / 1 thread$/ },
    needs: 'avx512',
  },
  {
    name: 'casts, of the copy bandwidth',
    goal: '>= 80 %',
    of: 'worst',
    rows: { name: 'cast' },
    limit:
      'f32 to f8_e4m3 at 78 %, with a spread of 28 %; in another run it was at 91 % and f32 to f16 the worst at 78 %: the bandwidth of this machine, measured beside each row, varies as much',
    next: 'a machine whose bandwidth is steady; conversion of a line while the next one is fetched',
  },
  { name: 'amax, of the read bandwidth', goal: '>= 80 %', rows: { name: 'amax' } },
  {
    name: 'training step of the conv model, batch 64',
    goal: '<= 97 ms',
    rows: { name: 'training step', shape: /whole step$/ },
  },
  {
    name: 'two models in two workers, one thread each, over one of them',
    goal: '>= 1.8 x',
    rows: { name: 'two workers' },
    limit:
      'between 1.3 and 1.8 x on two cores that other programs kept busy, where two processes with a model each reached 1.5 x',
    next: 'a machine with idle cores',
  },
  {
    name: 'time in kernels, f32 models over 1 ms',
    goal: '>= 97 %',
    of: 'worst',
    rows: { name: 'time in kernels' },
  },
  {
    name: 'growing past over onnxruntime-node: 200 plain runs of stories260K, one thread',
    goal: '>= 1 x',
    rows: { name: 'growing past', shape: /, run$/ },
    limit:
      'each step copies the past into the plan and out of it, and binds a new size; the 198 kernel calls take 0.15 ms of it',
    next: 'inputs that are read where the caller has them',
  },
  {
    name: 'growing past over onnxruntime-node: a step with bindState',
    goal: '>= 2 x',
    rows: { name: 'growing past', shape: /, bindState$/ },
    limit:
      '198 kernel calls a step, of which 120 belong to rotary embeddings that were exported as products and slices',
    next: 'one kernel for rotary embeddings; masks and gathered tables computed once for all layers',
  },
  {
    name: '1,000 runs with 1,000 sizes over onnxruntime-node, the worst of four nets',
    goal: '<= 1.1 x',
    of: 'worst',
    detail: 'runs',
    rows: { name: 'many sizes' },
    limit:
      'the decoder: 8 MB of past a run are copied twice on their way in and once on their way out; then convolutions of 8 to 16 channels',
    next: 'inputs that are read where the caller has them; kernels for convolutions of few channels',
  },
  {
    name: 'event loop held up by runs of 2,000 nodes with new sizes, at most',
    goal: '<= 5 ms',
    of: 'worst',
    detail: 'event loop held up at most',
    rows: { name: 'changing lengths', shape: /deep encoder.* cold/ },
  },
  {
    name: 'growth of resident memory between 500 and 1,000 sizes, the worst of four nets',
    goal: '<= 16 MB',
    of: 'worst',
    detail: 'RSS, growth in the second half',
    rows: { name: 'many sizes' },
  },
  {
    name: 'import over that of onnxruntime-node',
    goal: '<= 2 x',
    detail: 'import',
    rows: { name: 'import' },
    limit:
      '185 modules of 800 kB: Node.js takes 0.15 ms for an empty one, and 65 of them are the shape inference that a GraphBuilder needs at once',
    next: 'shape inference that is loaded by the first node of a GraphBuilder, with require() of an ES module',
  },
  {
    name: 'dgx-spark --help, above Node.js alone',
    goal: '<= 80 ms',
    detail: 'above Node.js alone',
    rows: { name: '--help' },
  },
  {
    name: 'load and first run over onnxruntime-node, the worst of five models',
    goal: '<= 1 x',
    of: 'worst',
    detail: 'load and first run',
    rows: { name: 'start', shape: /^[^,]*$/ },
    limit:
      'small models: 100 ms go to the 250 modules of the compiler and to code that runs for the first time; vgg19 and the transformer reach it',
    next: 'compiled plans on the disk',
  },
  {
    name: 'resident memory over onnxruntime-node, models over 50 MB',
    goal: '<= 1.15 x',
    of: 'worst',
    detail: 'RSS',
    rows: { name: 'start', shape: /^(resnet50|transformer|vgg19)[^,]*$/ },
    limit:
      "filters for Winograd's algorithm, four times as large as those of 3 x 3; the row below is without them",
    next: 'tiles of 2 x 2, whose filters are 1.8 times as large, where memory is short',
  },
  {
    name: "resident memory over onnxruntime-node, models over 50 MB with memory: 'small'",
    goal: '<= 1.15 x',
    of: 'worst',
    detail: 'RSS',
    rows: { name: 'start', shape: /, small$/ },
  },
  {
    name: 'graph of 2,000 nodes, compiled and run',
    goal: '<= 1000 ms',
    rows: { name: 'compile' },
  },
  {
    name: 'models of the shared data over onnxruntime-node',
    goal: '>= 1 x',
    rows: { name: 'models', shape: realModels, dtype: /^f(32|16)$/ },
  },
  {
    name: 'the slowest of all models over onnxruntime-node',
    goal: '>= 0.7 x',
    of: 'worst',
    rows: { name: 'models', dtype: /^(f32|f16|int8)$/ },
    limit:
      'dmonitoring, between 0.64 and 0.84 x in six runs of one day, and squeezenet, between 0.63 and 0.83 x: neighbours on the machine decide',
    next: 'what stands at the next target; a global mean of several rows together',
  },
  {
    name: 'small models over onnxruntime-node: dmonitoring, tinyphysics, batch 1',
    goal: '>= 1.2 x',
    rows: { name: 'models', shape: /^(dmonitoring|tinyphysics)/, dtype: /^f32$/ },
    limit:
      'tinyphysics alone reaches it; the steps of dmonitoring take about as long as those of ONNX Runtime by one thread (3.5 and 3.4 ms), where depthwise layers and 1 x 1 layers of few filters lose what others gain; by two, a tenth of a run is the way to another thread and back and the copy of its input',
    next: 'inputs that are read where the caller has them; depthwise layers of wide lines; 1 x 1 layers whose image leaves the cache',
  },
  {
    name: 'shufflenet in int8 over onnxruntime-node',
    goal: '>= 0.7 x',
    rows: { name: 'models', dtype: /^int8$/ },
  },
  {
    name: 'bf16 over onnxruntime-node in f32: resnet50, vgg19, inception_v1, transformer',
    goal: '>= 1.8 x',
    rows: { name: 'models', dtype: /^bf16$/ },
    needs: 'amx',
  },
  {
    name: 'simulation of 1,024 scenarios in a batch over one at a time',
    goal: '>= 5 x',
    rows: { name: 'simulation', shape: /^driving/ },
  },
  {
    name: 'simulation of 64 drives by tinyphysics over onnxruntime-node, one at a time',
    goal: '>= 3 x',
    rows: { name: 'simulation', shape: /^tinyphysics/ },
  },
]

/** @type {Omit<Target, 'device'>[]} */
const cuda = [
  {
    name: 'DoRA norm, bf16 4096x4096 r64',
    goal: '<= 15 µs',
    rows: { name: 'dora norm', shape: /^4096x4096 r64$/, dtype: /^bf16$/ },
    limit: 'H100: the norm multiplies W by Aᵀ in f32 on CUDA cores, 19 of 718 TFLOP/s',
    next: 'W·Aᵀ on tensor cores, its square and its product with B in the epilogue',
  },
  {
    name: 'DoRA norm, bf16 8192x8192 r64',
    goal: '<= 50 µs',
    rows: { name: 'dora norm', shape: /^8192x8192 r64$/, dtype: /^bf16$/ },
    limit: 'as above',
    next: 'as above',
  },
  {
    name: 'DoRA forward, bf16 4096x4096 r16 T8192',
    goal: '<= 0.50 ms',
    rows: { name: 'dora forward', shape: /^T8192 4096x4096 r16$/, dtype: /^bf16 in bf16$/ },
    limit: 'H100: 213 TFLOP/s of mma.sync; a plain product by cuBLASLt takes 0.44 ms',
    next: 'cuBLASLt for the base product with the adapter as a second product that it adds, or wgmma',
  },
  {
    name: 'DoRA forward and backward over fused LoRA, bf16 4096x4096 r16 T8192',
    goal: '<= 1.25 x',
    rows: { name: 'dora step', shape: /^T8192 /, dtype: /^bf16 in bf16$/ },
    limit: 'H100: 1.30 times LoRA of our products: dz is scaled and rounded in a pass of its own',
    next: 'the gain in the kernel that rounds dy',
  },
  {
    name: 'DoRA decode over LoRA, bf16 4096x4096 r16 T=1 and 16',
    goal: '<= 1.05 x',
    rows: { name: 'dora cached', shape: /^T(1|16) /, dtype: /^bf16 in bf16$/ },
  },
  {
    name: 'batched decode, NVFP4 4096x4096, T=32 and 64',
    goal: '<= 20 µs',
    rows: { name: 'linear', shape: /^T(32|64) 4096x4096$/, dtype: /^nvfp4 in bf16$/ },
  },
  {
    name: 'prefill, NVFP4 by NVFP4 4096x4096, T=8192',
    goal: '>= 120000 GFLOP/s',
    rows: { name: 'linear', shape: /^T8192 4096x4096$/, dtype: /^nvfp4 in nvfp4$/ },
    limit: 'GPUs below compute capability 10.0 multiply the same numbers in bf16',
  },
  {
    name: 'batched decode, FP8 4096x4096, T=32 and 64',
    goal: '<= 25 µs',
    rows: { name: 'linear', shape: /^T(32|64) 4096x4096$/, dtype: /^f8_e4m3 in bf16$/ },
  },
  {
    name: 'int8 4096x4096 over bf16, T=16 and 8192',
    goal: '>= 1.5 x',
    of: 'worst',
    rows: { name: 'linear integer' },
  },
  {
    name: 'int8 convolution 3x3 of 256 channels over bf16, 32 images of 56x56',
    goal: '>= 1.5 x',
    of: 'worst',
    rows: { name: 'conv integer', shape: /^32 x 256 x 56 x 56 3x3$/ },
  },
  {
    name: 'convolution, bf16 3x3 256 to 256 channels, 32 images of 14x14',
    goal: '>= 30000 GFLOP/s',
    rows: { name: 'conv channels last', shape: /^32x256x14 256x3$/, dtype: /^bf16 in bf16$/ },
  },
  {
    name: 'DoRA merge, bf16 4096x4096',
    goal: '<= 35 µs',
    rows: { name: 'dora merge', shape: /^4096x4096 r16$/, dtype: /^bf16$/ },
    limit: 'H100: B·A in f32 on CUDA cores for each tile, 41 % of the copy bandwidth at rank 16',
    next: 'B·A on tensor cores',
  },
  {
    name: 'NVFP4 quantize te, effective',
    goal: '>= 3.6 TB/s',
    rows: { name: 'nvfp4 quantize', shape: / te$/ },
  },
  {
    name: 'NVFP4 quantize modelopt, effective',
    goal: '>= 2.0 TB/s',
    rows: { name: 'nvfp4 quantize', shape: / modelopt$/ },
  },
  {
    name: 'training step of the conv model, batch 64, over PyTorch and PEFT, eager',
    goal: '>= 2 x',
    rows: { name: 'training step', shape: /whole step$/, dtype: /^f32$/ },
  },
  {
    name: 'driving_vision, a frame; with the policy 800 frames/s',
    goal: '<= 1000 µs',
    rows: { name: 'models', shape: /^driving_vision$/ },
    limit: 'H100: 2.6 ms, 2.9 TFLOP/s: where the time goes was not counted yet',
    next: 'times of its launches (ncu), then split sums where blocks leave processors idle',
  },
  {
    name: 'driving_policy, a frame',
    goal: '<= 250 µs',
    rows: { name: 'models', shape: /^driving_policy$/ },
    limit: 'H100: 0.43 ms, 0.18 TFLOP/s: launches, not products, but they were not counted yet',
    next: 'times of its launches (ncu), then fused epilogues',
  },
  {
    name: 'simulation of 1,024 scenarios over the same batch on the CPU',
    goal: '>= 5 x',
    rows: { name: 'simulation', shape: /^driving/ },
    limit:
      'H100 beside 16 cores: 0.88 x; where the time goes was not counted yet; a step works on vectors of 1,024 numbers',
    next: 'one kernel for the elementwise steps in a row; batches of 16,384 and more',
  },
  {
    name: 'text decode, bf16, one text, over transformers in a CUDA graph',
    goal: '>= 1 x',
    rows: { name: 'text decode', shape: /^depth 0 x1$/, dtype: /^bf16$/ },
    limit: 'H100: 3.0 ms against 2.5: 14 launches a layer, products at 1.2 of 3.0 TB/s',
    next: 'decision 255: RoPE, norms and SwiGLU in the epilogues, one launch of attention, blocks that fetch the next tile',
  },
  {
    name: 'text decode, Q4_0, one text',
    goal: '>= 400 token/s',
    rows: { name: 'text decode', shape: /^depth 0 x1$/, dtype: /^q4_0$/ },
  },
  {
    name: 'attention of a prompt of 4,096 tokens over blocks, bf16, of the fastest GEMM',
    goal: '>= 40 %',
    rows: { name: 'paged attention', shape: /^1 x 4096 /, dtype: /^bf16$/ },
  },
  {
    name: 'gradients of attention, 2,048 tokens, bf16, of the fastest GEMM',
    goal: '>= 25 %',
    rows: { name: 'attention backward', shape: / 2048x2048 /, dtype: /^f32 in bf16$/ },
  },
  {
    name: 'two models side by side over one after the other',
    goal: '>= 1.3 x',
    rows: { name: 'side by side', shape: / T16$/ },
  },
  { name: 'casts, of a device copy', goal: '>= 85 %', of: 'worst', rows: { name: 'cast' } },
  { name: 'transpose, of a device copy', goal: '>= 70 %', rows: { name: 'copy, transpose', dtype: /^f32$/ } },
  { name: 'rotary, of a device copy', goal: '>= 80 %', rows: { name: 'rotary, halves', shape: /^1x2048x/ } },
]

/** All of them. A missed one says in `limit` and `next` why, and what to try. @type {Target[]} */
export const targets = [
  ...cpu.map(target => ({ ...target, device: /** @type {const} */ ('cpu') })),
  ...cuda.map(target => ({ ...target, device: /** @type {const} */ ('cuda') })),
]
