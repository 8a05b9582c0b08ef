// decoder-graph.ts: the graph of the decoder of a language model, as all nodes cut it.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import type { Graph } from '../../graph/graph.js'
import type { Decoder } from '../../text/architectures/decoder.js'
import type { OpenedModel } from '../../text/files/model-files.js'
import { type DecoderForm, engineGraph } from '../../text/generation/decoder-engine.js'

/**
 * The graph of the decoder of a language model.
 * @param file - its first file: config.json of a folder, or a GGUF file. Tensors of other layers may be holes in the files
 * @throws SparkError as `TextModel.load`
 */
export async function readDecoderGraph(file: string, form: DecoderForm, signal: AbortSignal): Promise<Graph> {
  const { readModel } = await import('../../text/files/model-files.js')
  const isFolder = path.basename(file) === 'config.json'
  const model = await readModel(isFolder ? path.dirname(file) : file, new Pacer(signal))
  return engineGraph(expectDecoder(model, file).decoder, form)
}

/** @throws SparkError ERR_UNSUPPORTED for what is no decoder in GGUF or safetensors */
export function expectDecoder(model: OpenedModel, source: string): { decoder: Decoder } & Required<Made> {
  if (model.kind === 'encoder')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${source} makes vectors of texts: it runs on one machine, with TextModel.load`,
    )
  if (!model.made)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${source} is an ONNX model: its stages run with Cluster.load, its text with TextModel.load on one machine`,
    )
  return { decoder: model.decoder, made: model.made }
}

type Made = Pick<Extract<OpenedModel, { kind: 'decoder' }>, 'made'>
