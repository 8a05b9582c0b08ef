/// <reference lib="esnext.disposable" preserve="true" />
/**
 * GPU machine learning for Node.js: on NVIDIA DGX Spark with the GPU, on everything else on the CPU.
 *
 * @packageDocumentation
 */
// biome-ignore-all assist/source/organizeImports: exports stand in reading order

// errors
export { type ErrorCode, SparkError } from './core/errors.js'

// configuration
export type { BackendName, Precision } from './core/config.js'

// hardware
export type { BackendChoice } from './hardware/backend-choice.js'
export type { CpuInfo } from './hardware/cpu.js'
export type { CpuSample } from './hardware/cpu-meter.js'
export type { GpuSelector } from './hardware/cuda-device.js'
export {
  getBestGpu,
  getNvidiaGpus,
  getRecommendedPrecision,
  isNvidiaAvailable,
} from './hardware/functions.js'
export type { GpuInfo, GpuMemory, PciDevice, PrecisionSupport, SupportClass } from './hardware/gpu.js'
export type { GpuProcess, GpuSample } from './hardware/gpu-sample.js'
export { type DetectOptions, HardwareInfo } from './hardware/hardware-info.js'
export type { DriverProblems } from './hardware/machine.js'
export {
  type GpuSummary,
  MachineMonitor,
  type MachineSample,
  type MachineSummary,
} from './hardware/machine-monitor.js'
export type { MachineMemory } from './hardware/memory.js'
export { GpuMonitor, type GpuMonitorOptions } from './hardware/monitor.js'
export type { MonitorSummary, Spread } from './hardware/monitor-statistics.js'
export type { GpuVendor } from './hardware/pci.js'
export { isDgxSpark, type Platform } from './hardware/spark.js'
export type { ThrottleReason } from './hardware/throttling.js'

// precision
export {
  type CastOptions,
  cast,
  decode,
  encode,
  type QuantizerInput,
  type QuantizerTensor,
} from './precision/casts.js'
export {
  dequantizeFP8,
  type FP8BlockWeight,
  type FP8Weight,
  type QuantizeFP8Options,
  quantizeFP8,
} from './precision/fp8.js'
export {
  dequantizeNVFP4,
  type NVFP4Weight,
  type QuantizeNVFP4Options,
  quantizeNVFP4,
} from './precision/nvfp4.js'
export { swizzleScales, unswizzleScales } from './precision/swizzle.js'

// memory
export {
  type AllocateOptions,
  type CopyOptions,
  type MemoryAdvice,
  type MemoryKind,
  type MemoryStats,
  type TypedArray,
  type TypedArrayConstructor,
  UnifiedBuffer,
} from './memory/unified-buffer.js'

// tensors
export type { DType, DTypeArray, ElementArray, ElementType, TypedArrayOf } from './core/dtype.js'
export type { SizeExpression } from './core/size-scope.js'
export {
  type Nested,
  type NestedNumbers,
  type RandomOptions,
  Tensor,
  type TensorOptions,
  type TensorValues,
  type TypeOfArray,
  type UntypedTensorOptions,
} from './memory/tensor.js'

// files
export {
  parseSafetensors,
  readSafetensors,
  type SafetensorsData,
  type SafetensorsDType,
  type SafetensorsFile,
  type SafetensorsInput,
  type SafetensorsTensor,
  serializeSafetensors,
  tensorFromRecord,
  type WriteSafetensorsOptions,
  writeSafetensors,
} from './io/safetensors.js'
export { readGguf, writeGguf } from './io/gguf/gguf.js'
export type { GgufInput, GgufTensorInput } from './io/gguf/input.js'
export type { GgufFile, GgufTensor } from './io/gguf/file.js'
export type {
  GgufArray,
  GgufElements,
  GgufNumber,
  GgufScalar,
  GgufSingle,
  GgufValue,
} from './io/gguf/values.js'
export type { BlockFormat } from './weights/blocks/formats.js'
export type { EncodedFormat } from './weights/blocks/encode.js'

// frozen weights; the kernels themselves are in dgx-spark/kernels
export type {
  BlockWeight,
  FloatWeight,
  Int8Weight,
  Weight,
  WeightFormat,
  WeightLayout,
  WeightMemory,
} from './weights/weight.js'
export type { BlockWeightFormat, GgufWeightFormat, GroupWeightFormat } from './weights/formats.js'
export type { NVFP4Recipe } from './precision/kernel-args.js'

// models
export { Model } from './model/model.js'
export type { LoadOptions, ModelOptions, RunOptions } from './model/model-options.js'
export type { StateOutput, StatePairs } from './model/state-pairs.js'
export { type StateOptions, StatefulModel } from './model/stateful-model.js'
export type { ModelFile, SourceOptions } from './model/model-file.js'
export type { ModelValue } from './model/model-value.js'
export type { AnyTensor, ModelOutput, OutputTypes, RunResults } from './model/results.js'
export { compare, type OutputDifference } from './diagnostics/compare.js'
export {
  type CompareWeightsOptions,
  compareWeights,
  type WeightDifference,
} from './diagnostics/compare-weights.js'
export { benchmark, benchmarkTogether } from './benchmark/benchmark.js'
export {
  type BeforeAfter,
  type BenchmarkComparison,
  type CompareBenchmarksOptions,
  compareBenchmarks,
  type Pair,
} from './benchmark/comparison.js'
export type { BenchmarkMachine } from './benchmark/machine.js'
export type {
  BenchmarkEngineOptions,
  BenchmarkOptions,
  BenchmarkVariant,
  TogetherOptions,
} from './benchmark/options.js'
export type {
  BenchmarkRecord,
  BenchmarkResult,
  InferenceEnergy,
  BenchmarkMeasurement,
  OutputValues,
  ResourceUse,
  TogetherModel,
  TogetherResult,
} from './benchmark/result.js'
export type { ConfidenceInterval, Latency } from './benchmark/statistics.js'
export type { WeightCacheOptions } from './model/weight-cache.js'
export type { MemoryUse } from './plan/compile.js'
export type { StepTime } from './plan/step-time.js'
import { installTensorOperations } from './model/tensor-operations.js'
export type {
  ReductionOptions,
  SearchOptions,
  TensorOperand,
  TopK,
  TopKOptions,
} from './model/tensor-operations.js'
export type { SliceOptions } from './model/tensor-movements.js'
export { BoundModel } from './model/bound-model.js'
export type {
  ProviderSettings,
  RuntimeProvider,
  EngineOptions,
  ModelBackend,
  ModelBackendChoice,
  ModelStats,
} from './model/engine.js'
export type { PlanCommunicator } from './kernels/collective-args.js'
export type { Feed, Feeds } from './model/feeds.js'
export { type WriteOnnxOptions, writeOnnx } from './io/onnx/save.js'

// graphs
export type { AttributeValue } from './model/attribute-values.js'
export {
  GraphBuilder,
  type GraphBuilderOptions,
  type NodeDetails,
  type Operand,
} from './model/graph-builder.js'
export { Constant, type NumericType } from './graph/constant.js'
export type {
  Attribute,
  AttributeReference,
  Attributes,
  AttributeTypes,
  ContainerType,
  Dimension,
  SymbolicDimension,
  Graph,
  GraphFunction,
  IntegerValue,
  MapType,
  Node,
  Producer,
  SparseConstant,
  SparseType,
  Subgraph,
  TensorType,
  TypedAttribute,
  ValueInfo,
  ValueType,
} from './graph/graph.js'

// DoRA
export { AdaptedLayer } from './dora/layer/adapted-layer.js'
export { DoRALinear } from './dora/layer/dora-linear.js'
export type {
  LayerAdapterOptions,
  DoRAGradients,
  DoRALinearOptions,
  ForwardOptions,
  LayerOptions,
  LinearLayer,
  MergeOptions,
  NormGradient,
  Parameter,
} from './dora/layer/layer-types.js'
export {
  type PeftAdapter,
  type PeftModule,
  readPeftAdapter,
  writePeftAdapter,
} from './dora/peft/adapter-folder.js'
export type { PeftConfig } from './dora/peft/config.js'

// adapters of models
export type { AdapterOptions } from './dora/model/adapter-options.js'
export { createAdapter } from './dora/model/create-adapter.js'
export type { Names, NamedModule, TargetRules } from './dora/peft/target-matching.js'
export { Adapter } from './dora/model/adapter.js'
export type { TrainableAdapter, TrainingRecord } from './dora/model/trainable-adapter.js'
export type { ImportAdapterOptions } from './dora/model/import-adapter.js'
export type { AdapterFileOptions, LoadAdapterOptions } from './dora/model/peft-folder.js'
export type { AdapterModule } from './dora/model/adapter-module.js'
export type { GraphModule } from './dora/model/find-modules.js'
export type { WeightPattern } from './graph/weight-pattern.js'
export type { HasGraph, ModelSource } from './dora/model/model-source.js'
export type { MergedModel, MergeModelOptions } from './dora/model/merge.js'
export {
  type Active,
  AdaptedModel,
  type AdaptedRunOptions,
} from './dora/model/adapted-model.js'
export { exportCheckpoint } from './dora/model/export-checkpoint.js'
export type { ExportOptions, QuantizedCheckpoint } from './io/checkpoints/checkpoint.js'
export { readCheckpoint } from './io/checkpoints/checkpoint.js'
export type { CheckpointLayout } from './io/checkpoints/layout.js'

// training
export type {
  FeatureTerm,
  HypothesesTerm,
  Loss,
  LossTerm,
  PairTerm,
  PathTerm,
  PathValues,
  WeightedTerm,
} from './graph/rewrites/losses.js'
export {
  ArrayDataset,
  type Batch,
  type BatchStream,
  type BatchTensor,
  type Dataset,
  type TrainingData,
} from './training/dataset.js'
export type { Evaluation } from './training/evaluator.js'
export { readEvents, readValidations } from './training/log.js'
export type { MetricFunction, MetricName, Metrics, MetricTerm } from './training/metrics.js'
export type { AdamW, OptimizerOptions, Sgd } from './training/optimizers.js'
export type {
  CheckpointOptions,
  TrainableModel,
  TrainerOptions,
  TrainingEvent,
  TrainingPrecision,
} from './training/options.js'
export type { GradientExchange } from './training/shared-gradients.js'
export { type ReportOptions, reportPage, writeReport } from './training/report.js'
export type { PlateauSchedule, ScheduleOptions, SteppedSchedule } from './training/schedules.js'
export { splitDataset } from './training/split.js'
export type { StopReason, TrainingSummary } from './training/summary.js'
export { TrainableWeights } from './training/trainable-weights.js'
export { Trainer } from './training/trainer.js'
export type { EvaluateOptions, FitOptions, Validation } from './training/validation.js'

// downloads
export { type DownloadFileOptions, type DownloadProgress, downloadFile } from './hub/download.js'
export { pullModel } from './hub/pull.js'
export type {
  PlannedFile,
  PulledFile,
  PulledModel,
  PullOptions,
  PullPlan,
  PullProgress,
} from './hub/pull-options.js'
export type { ModelFormat } from './hub/select-files.js'

// training data
export { openData, type StreamOf } from './data/open.js'
export { type BadRow, type FieldRule, type FieldRules, TableDataset } from './data/table.js'
export { type LogEvents, type LogSummary, readLog, summarizeLog } from './data/route/log.js'
export type { EventFilter, EventHeader, LogEvent } from './data/route/log-event.js'
export type { EventName, EventValues } from './data/route/event-types.js'
export type { LogDamage, StreamDamage } from './data/route/damage.js'
export { formatRouteName, parseRouteName, type RouteName } from './data/route/names.js'
export {
  findRoutes,
  logOf,
  type Route,
  type Segment,
  type SegmentFile,
} from './data/route/routes.js'
export { expectVideo, type VideoFile, videoOf } from './data/route/videos.js'
export {
  type CanFrames,
  type Comma2k19Segment,
  findComma2k19,
  type Measurement,
  type Poses,
  readComma2k19,
} from './data/route/comma2k19.js'
export { countsBefore, interpolate } from './data/route/align.js'
export { readSignals, type SignalSource, type SignalTable } from './data/route/signals.js'
export type { RowOptions, SignalColumn } from './data/route/signal-series.js'
export { readVideo, type Video, type VideoOptions } from './data/video.js'
export type { FrameSize, VideoBatch } from './data/video-batch.js'

// openpilot
export * from './openpilot/api.js'

// simulation
export * from './simulation/api.js'

// language models
export { TextModel } from './text/text-model.js'
export type { CacheType } from './text/architectures/cache-types.js'
export type { Generation } from './text/generation/generation.js'
export { type SessionOptions, TextSession } from './text/text-session.js'
export type {
  EmbedInput,
  EmbedOptions,
  FinishReason,
  GeneratedText,
  GeneratedToken,
  GenerationOptions,
  TextInput,
  TextModelOptions,
  TextProbabilities,
} from './text/text-options.js'
export { TextTokenizer } from './text/text-tokenizer.js'
export type { DecodeOptions, EncodeOptions, SpecialToken, SpecialTokens } from './text/tokenizer-options.js'
export { ChatTemplate } from './text/chat-template.js'
export type { ChatMessage, ChatOptions } from './text/chat-options.js'
export type { StreamDecoder } from './text/stream-decoder.js'
export { type SampledToken, Sampler, type TokenLogprob } from './text/sampler.js'
export type { SamplingOptions } from './text/sampling-options.js'
export { StopDetector, type StoppedText } from './text/stop-detector.js'

installTensorOperations()
