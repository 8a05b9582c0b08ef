// open-decoder.ts: a decoder of an ONNX file.
import { SparkError } from '../../core/errors.js'
import type { Pacer } from '../../core/paced.js'
import { readOnnx } from '../../io/onnx/read.js'
import type { Decoder } from '../architectures/decoder.js'
import type { OnnxFiles } from './decoder-files.js'
import { raggedDecoder } from './ragged-graph.js'

/**
 * Opens a decoder of an ONNX file.
 * @throws SparkError ERR_IO; ERR_FORMAT; ERR_UNSUPPORTED naming file and node; the reason of the signal of `pacer`
 */
export async function openOnnxDecoder({ file, type, options }: OnnxFiles, pacer: Pacer): Promise<Decoder> {
  const exported = await readOnnx(file, pacer)
  try {
    const decoder = await raggedDecoder(exported, options, pacer)
    const { layers, vocabularySize, hiddenSize, shortLength, graph } = decoder
    const { contextLength } = options
    return { sizes: { type, hiddenSize, vocabularySize, contextLength, layers, shortLength }, graph }
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    throw new SparkError(error.code, `${file}: ${error.message}`, { cause: error })
  }
}
