import { type Command, Option } from 'commander'
import { SparkError } from '../core/errors.js'
import { exportCheckpoint } from '../dora/model/export-checkpoint.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import {
  type QuantizedFormat,
  quantizableWeights,
  quantizeWeights,
} from '../graph/rewrites/quantize-weights.js'
import type { CheckpointLayout } from '../io/checkpoints/layout.js'
import { lockFile, lockFolder } from '../io/lock.js'
import { readOnnx } from '../io/onnx/read.js'
import { writeOnnx } from '../io/onnx/write.js'
import { pathFrom } from './numbers.js'
import { print, printError, printJson } from './output.js'

interface QuantizeFlags {
  output: string
  format: QuantizedFormat
  layout: 'onnx' | CheckpointLayout
  json?: boolean
}

/** `dgx-spark quantize`: the weights of an ONNX model in NVFP4 or FP8. */
export function addQuantize(program: Command): void {
  program
    .command('quantize')
    .description('store the matrices of an ONNX model in NVFP4 or FP8')
    .argument('<model>', 'ONNX file')
    .requiredOption('-o, --output <path>', 'ONNX file to write, or the folder of a checkpoint', pathFrom)
    .addOption(new Option('--format <name>', 'format of weights').choices(['nvfp4', 'fp8']).default('nvfp4'))
    .addOption(
      new Option('--layout <name>', 'an ONNX file, or a checkpoint as one of these reads it')
        .choices(['onnx', 'modelopt', 'compressed-tensors'])
        .default('onnx'),
    )
    .option('--json', 'print one JSON document')
    .action(async (model: string, flags: QuantizeFlags) => {
      const graph = canonicalise(await readOnnx(model))
      const { output, format, layout } = flags
      let quantized: readonly string[]
      if (layout === 'onnx') {
        quantized = quantizableWeights(graph, format)
        if (quantized.length === 0) {
          const message = `${model} has no matrix of floats that ${format} can hold: nothing was written`
          throw new SparkError('ERR_UNSUPPORTED', message)
        }
        using _lock = await lockFile(output)
        await writeOnnx(quantizeWeights(graph, { format }), output)
      } else if (format === 'fp8') {
        printError(`--layout ${layout} takes --format nvfp4 only`)
        process.exitCode = 2
        return
      } else {
        using _lock = await lockFolder(output)
        quantized = (await exportCheckpoint(graph, output, { layout })).quantized
      }
      if (flags.json) printJson({ output, format, layout, quantized })
      else print(`wrote ${output}: ${quantized.length} matrices in ${format}`)
    })
}
