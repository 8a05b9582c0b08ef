// save.ts: ONNX files as callers have them written.
import { expectKnownOptions, expectText } from '../../core/checks.js'
import type { Graph } from '../../graph/graph.js'

/** How an ONNX file is written. */
export interface WriteOnnxOptions {
  /**
   * Whether weights go into a file of their own beside the model, named like it with `.data` behind. Default: only
   * when the model would exceed the 2 GiB that one ONNX file can have.
   */
  externalData?: boolean
}

/**
 * Writes a graph as an ONNX file, which appears whole or not at all. A canonical graph is written at the lowest opset
 * that has its operators; another one at its own. Weights that are in files are read one after another.
 * @throws SparkError ERR_IO when it cannot be written, ERR_UNSUPPORTED when it is too large for one file and
 * `externalData` is false, or when graphs lie too deep inside each other, ERR_ARGUMENT
 */
export async function writeOnnx(graph: Graph, file: string, options: WriteOnnxOptions = {}): Promise<void> {
  expectKnownOptions('options', options, ['externalData'])
  expectText('file', file)
  const { writeGraph } = await import('./write.js')
  await writeGraph(graph, file, options.externalData)
}
