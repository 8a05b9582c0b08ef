// finetune-options.ts: options of `dgx-spark finetune`.
import { type Command, InvalidArgumentError } from 'commander'
import { type BackendName, backendNames, type Precision, precisions } from '../core/config.js'
import { type ModelBackend, modelBackends } from '../model/engine.js'
import type { MetricName } from '../training/metrics.js'
import type { TrainingPrecision } from '../training/options.js'
import { choice } from './command.js'
import { lossNames } from './finetune-loss.js'
import { integerFrom, numberFrom, pathFrom, positive } from './numbers.js'

/** Arguments of the command line. */
export interface FinetuneOptions {
  model: string
  data?: string
  validation?: string
  output: string
  createAdapter?: boolean
  method: 'dora' | 'lora' | 'full'
  epochs: number
  batchSize: number
  accumulate: number
  optimizer: 'adamw' | 'sgd'
  lr: number
  weightDecay?: number
  schedule: 'constant' | 'linear' | 'cosine' | 'reduce-on-plateau'
  warmup?: number
  loss: string
  preset?: 'openpilot'
  vision?: string
  teacherVision?: string
  teacherBackend?: ModelBackend
  teacherProvider?: string
  teacherPrecision?: Precision
  every: number
  cache?: string
  car?: string
  condition?: string
  teacher?: string
  metrics?: MetricName[]
  monitor?: string
  patience?: number
  rank: number
  alpha: number
  dropout: number
  targets: string
  normalize?: [mean: number, deviation: number]
  clip: number
  seed: number
  checkpointEvery: number
  resume?: boolean
  dryRun?: boolean
  backend?: BackendName
  precision?: TrainingPrecision
}

const pair = (text: string): [number, number] => {
  const values = text.split(',').map(part => (part.trim() === '' ? Number.NaN : Number(part)))
  if (values.length === 2 && values.every(Number.isFinite) && values[1] !== 0)
    return values as [number, number]
  throw new InvalidArgumentError('expected a mean and a deviation, such as 0.1307,0.3081')
}

/** Names, separated by commas. */
export const names = (text: string): string[] => text.split(',').map(name => name.trim())

/** Options of the data. */
export function addDataOptions(command: Command): void {
  command
    .option(
      '--data <path>',
      'a folder of IDX, npy or safetensors files, or a JavaScript module of batches',
      pathFrom,
    )
    .option(
      '--validation <path|fraction>',
      'data to validate with after each epoch, or a share of --data',
      pathFrom,
    )
    .option('--metrics <names>', 'what validation measures: accuracy, top5, mae, rmse', names)
    .option('--monitor <name>', 'what decides which parameters are best: loss or a metric (default: loss)')
    .option('--patience <n>', 'end after so many validations that are not better', integerFrom(1))
    .option('--normalize <mean,deviation>', 'images become (pixel / 255 − mean) / deviation', pair)
}

/** Options of what is trained. */
export function addMethodOptions(command: Command): void {
  command
    .addOption(
      choice('--method <name>', 'what is trained: an adapter, or all weights', [
        'dora',
        'lora',
        'full',
      ]).default('dora'),
    )
    .option('--dora-rank, --rank <n>', 'rank of the adapter', integerFrom(1, 2 ** 20), 16)
    .option('--dora-alpha, --alpha <n>', 'the adapter is scaled by alpha / rank', numberFrom(0), 16)
    .option(
      '--dora-dropout, --dropout <p>',
      'probability that an input of the adapter is dropped',
      numberFrom(0, 1),
      0,
    )
    .option('--targets <names>', 'ends of module names, separated by commas', 'all-linear')
}

/** Options of the training. */
export function addTrainingOptions(command: Command): void {
  command
    .option('--epochs <n>', 'times that all samples are seen', integerFrom(1), 10)
    .option('--batch-size <n>', 'samples of a batch', integerFrom(1), 32)
    .option('--accumulate <n>', 'batches of a step', integerFrom(1), 1)
    .addOption(choice('--optimizer <name>', 'how weights are updated', ['adamw', 'sgd']).default('adamw'))
    .option('--lr <rate>', 'learning rate', numberFrom(0), 1e-4)
    .option('--weight-decay <factor>', 'decay of weights (default: 0.01 for adamw, 0 for sgd)', numberFrom(0))
    .addOption(
      choice('--schedule <name>', 'how the learning rate changes', [
        'constant',
        'linear',
        'cosine',
        'reduce-on-plateau',
      ]).default('constant'),
    )
    .option('--warmup <steps>', 'steps over which the learning rate rises from 0', integerFrom(0))
    .option(
      '--loss <loss>',
      `what is minimised: ${lossNames.join(', ')}, with settings such as mse:output=y,target=z; or a .onnx or .json file`,
      'cross-entropy',
    )
    .option('--teacher <file>', 'an ONNX model whose outputs are targets', pathFrom)
    .option('--clip <norm>', 'largest norm of the gradients', positive, 1)
    .option('--seed <n>', 'seed of the adapter and of the order of samples', integerFrom(0, 2 ** 32 - 1), 0)
    .option('--checkpoint-every <steps>', 'steps between two checkpoints', integerFrom(1), 500)
    .option('--resume', 'go on from the newest checkpoint of the output folder')
    .option('--dry-run', 'check model, data and options with one step; write nothing')
    .addOption(choice('--backend <name>', 'engine to run on', backendNames))
    .addOption(choice('--precision <mode>', 'what products round to', ['fp32', 'fp16', 'bf16']))
}

/** Options of `--preset openpilot`. */
export function addPresetOptions(command: Command): void {
  command
    .addOption(
      choice('--preset <name>', 'what data and loss are: drives, and the outputs of a teacher', [
        'openpilot',
      ]),
    )
    .option('--vision <file>', 'openpilot: the ONNX model that sees for a policy', pathFrom)
    .option(
      '--teacher-vision <file>',
      'openpilot: the one that sees for the teacher (default: --vision)',
      pathFrom,
    )
    .addOption(choice('--teacher-backend <name>', 'openpilot: engine of the teacher', modelBackends))
    .option(
      '--teacher-provider <name>',
      'openpilot: where onnxruntime runs the teacher: cpu, cuda, tensorrt …',
    )
    .addOption(choice('--teacher-precision <mode>', 'openpilot: precision of the teacher', precisions))
    .option('--every <n>', 'openpilot: one frame in so many is learned', integerFrom(1, 1000), 1)
    .option(
      '--cache <folder>',
      'openpilot: where outputs of the teacher are kept (default: in --output)',
      pathFrom,
    )
    .option('--car <name>', 'openpilot: the car, for the adapter (default: as the logs say)')
    .option('--condition <text>', 'openpilot: what the drives have in common, for the adapter: night, rain …')
}
