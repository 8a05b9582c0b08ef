// model-costs.ts: costs of a model, whatever it is.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { ioError } from '../../io/atomic-write.js'
import type { ModelCosts } from './costs.js'
import type { GraphShapes } from './graph-costs.js'

/** Options of {@link modelCosts}. */
export interface ModelCostsOptions {
  /** Shapes of inputs of a graph by name; sizes that are not given are 1. */
  readonly shapes?: GraphShapes
  /** What reports call the model. Default: the name of the graph or file. */
  readonly name?: string
}

/**
 * Costs of each layer of a model: bytes of weights, arithmetic by dtype, keys and values of a token, bytes to the next layer,
 * operators. Weights are not read.
 * @param source - a graph; an ONNX file; a GGUF file; the folder of a language model with safetensors
 * @throws SparkError ERR_IO, ERR_FORMAT, ERR_SHAPE; ERR_UNSUPPORTED for the architecture of a language model that is not known
 */
export async function modelCosts(
  source: Graph | string,
  options: ModelCostsOptions = {},
): Promise<ModelCosts> {
  const costs = await costsOf(source, options)
  return options.name === undefined ? costs : { ...costs, name: options.name }
}

async function costsOf(source: Graph | string, { shapes }: ModelCostsOptions): Promise<ModelCosts> {
  if (typeof source !== 'string') return ofGraph(source.name, source, shapes)
  const isFolder = await stat(source).then(
    found => found.isDirectory(),
    error => {
      throw ioError('read', source, error)
    },
  )
  const { isGguf } = await import('../../io/gguf/is-gguf.js')
  if (isFolder || (await isGguf(source))) {
    if (isFolder && !(await hasWeights(source)))
      throw new SparkError('ERR_FORMAT', `${source} has no safetensors: give the .onnx or .gguf file in it`)
    const { languageCosts } = await import('./language-costs.js')
    return languageCosts(source, isFolder)
  }
  const { readOnnx } = await import('../../io/onnx/read.js')
  return ofGraph(path.basename(source), await readOnnx(source), shapes)
}

async function hasWeights(folder: string): Promise<boolean> {
  const { hasSafetensors } = await import('../../text/files/model-files.js')
  return hasSafetensors(folder)
}

async function ofGraph(name: string, graph: Graph, shapes: GraphShapes | undefined): Promise<ModelCosts> {
  const [{ canonicalise }, { graphCosts }] = await Promise.all([
    import('../../graph/rewrites/canonicalise.js'),
    import('./graph-costs.js'),
  ])
  return graphCosts(name, canonicalise(graph), shapes)
}
