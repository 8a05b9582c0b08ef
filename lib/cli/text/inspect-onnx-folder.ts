// inspect-onnx-folder.ts: `dgx-spark inspect` of the folder of a language model in ONNX: the weights as they are held in memory.
import path from 'node:path'
import { Pacer } from '../../core/paced.js'
import type { Graph } from '../../graph/graph.js'
import type { OnnxFiles } from '../../text/onnx/decoder-files.js'
import { openOnnxDecoder } from '../../text/onnx/open-decoder.js'
import { weightBytes } from '../../weights/encode.js'
import { formatCount } from '../counts.js'
import { formatBytes, print, printJson, printPairs, styled } from '../output.js'
import {
  bitsEach,
  type ListedTensor,
  memoryPairs,
  memoryWith,
  printTensors,
  sum,
  tensorRecords,
  totalsByFormat,
} from './tensor-tables.js'

/** Prints what a model of the folder takes in memory. */
export async function inspectOnnxFolder(
  files: OnnxFiles,
  options: { context?: number; json?: boolean },
): Promise<void> {
  const { sizes, graph } = await openOnnxDecoder(files, new Pacer())
  const tensors = heldTensors(graph({ blocks: 1, blockSize: 1 }))
  const perToken = sizes.layers.reduce((total, { kvHeads, headSize }) => total + 2 * kvHeads * headSize, 0)
  const cache = { perToken, limit: sizes.contextLength }
  const memory = memoryWith(sum(tensors, 'byteLength'), options.context, cache)
  const formats = totalsByFormat(tensors)
  const parameters = sum(tensors, 'count')
  const { folder, file, type: architecture } = files
  if (options.json) {
    printJson({
      ...{ kind: 'onnx', file: path.relative(folder, file), architecture, parameters, memory },
      formats: Object.fromEntries(formats),
      tensors: tensorRecords(tensors),
    })
    return
  }
  print(styled('bold', path.basename(path.resolve(folder))))
  printPairs([
    ['model', path.relative(folder, file)],
    ['architecture', architecture],
    ['parameters', formatCount(parameters)],
    [
      'weights',
      `${formatBytes(memory.weightBytes)} in memory, ${bitsEach(memory.weightBytes, parameters)} bits a parameter`,
    ],
    ...memoryPairs(memory),
  ])
  printTensors(tensors, formats)
}

/** Constants of floats with a dimension or more; those that share a weight are listed once. */
function heldTensors({ initializers }: Graph): ListedTensor[] {
  const seen = new Set<object>()
  return [...initializers].flatMap(([name, { dtype, shape, count, byteLength, weight }]) => {
    const isNew = !weight || !seen.has(weight.shared)
    if (weight) seen.add(weight.shared)
    if (!isNew || shape.length === 0 || !(weight || /^(f|bf)/.test(dtype))) return []
    const bytes = weight ? weightBytes(weight.shared.kept) : byteLength
    return [{ name, format: weight?.shared.format ?? dtype, shape, count, byteLength: bytes }]
  })
}
