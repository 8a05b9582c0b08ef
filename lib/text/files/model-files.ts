// model-files.ts: a language model on the disk: a folder of Hugging Face or of ONNX, or a GGUF file.
import { readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Pacer } from '../../core/paced.js'
import { ioError } from '../../io/atomic-write.js'
import type { GgufFile } from '../../io/gguf/file.js'
import { isThere, readJson } from '../../io/read-file.js'
import type { DecoderConfig, WeightSource } from '../architectures/config.js'
import { configuredDecoder, type Decoder } from '../architectures/decoder.js'
import type { EncoderConfig } from '../architectures/encoder-config.js'
import type { ModelConfig } from '../architectures/model-config.js'
import type { EmbeddingDefaults } from '../embedding/embedding-defaults.js'
import type { OnnxFiles } from '../onnx/decoder-files.js'
import { TextTokenizer } from '../text-tokenizer.js'
import type { GenerationDefaults } from './generation-defaults.js'

/** A decoder, or an encoder with its weights. */
export type OpenedModel =
  | {
      readonly kind: 'decoder'
      readonly decoder: Decoder
      /** What it is made of; undefined where that is an ONNX model. */
      readonly made?: { readonly config: DecoderConfig; readonly weights: WeightSource }
    }
  | { readonly kind: 'encoder'; readonly config: EncoderConfig; readonly weights: WeightSource }

/** What a language model is made of. */
export interface ModelFiles {
  readonly model: OpenedModel
  readonly tokenizer: TextTokenizer
  readonly generation: GenerationDefaults
  readonly embedding: EmbeddingDefaults
}

/**
 * Reads a language model.
 * @param source - a folder with config.json, weights and tokenizer; one with an ONNX model, or the model in it; or a GGUF file
 * @throws SparkError ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED naming file, key or tensor
 */
export async function readModelFiles(source: string, pacer: Pacer): Promise<ModelFiles> {
  const isFolder = await isDirectory(source)
  if (isFolder && (await hasSafetensors(source))) return readFolder(source, pacer)
  const { findOnnxDecoder } = await import('../onnx/decoder-files.js')
  const onnx = isFolder || source.endsWith('.onnx') ? await findOnnxDecoder(source) : undefined
  if (onnx) return readOnnxModel(onnx, pacer)
  if (isFolder) return readFolder(source, pacer)
  const { isGguf } = await import('../../io/gguf/is-gguf.js')
  if (await isGguf(source)) return readGgufModel(source, pacer)
  const message = `${source} is no language model: give a folder with config.json, an ONNX model, or a GGUF file`
  throw new SparkError('ERR_FORMAT', message)
}

async function isDirectory(source: string): Promise<boolean> {
  try {
    return (await stat(source)).isDirectory()
  } catch (error) {
    throw ioError('read', source, error)
  }
}

/** Whether a folder has weights as safetensors. */
export async function hasSafetensors(folder: string): Promise<boolean> {
  const names = await readdir(folder)
  return names.some(name => name.endsWith('.safetensors'))
}

const opened = (config: ModelConfig, weights: WeightSource): OpenedModel =>
  config.kind === 'encoder'
    ? { kind: 'encoder', config: config.encoder, weights }
    : {
        kind: 'decoder',
        decoder: configuredDecoder(config.decoder, weights),
        made: { config: config.decoder, weights },
      }

async function readOnnxModel(files: OnnxFiles, pacer: Pacer): Promise<ModelFiles> {
  const [{ openOnnxDecoder }, { folderDefaults, genaiDefaults }, { folderEmbedding }] = await Promise.all([
    import('../onnx/open-decoder.js'),
    import('./generation-defaults.js'),
    import('../embedding/embedding-defaults.js'),
  ])
  const { folder, config, configFile, isGenai } = files
  const tokenizer = await TextTokenizer.load(folder)
  const generation = isGenai
    ? genaiDefaults(config, configFile, tokenizer)
    : await folderDefaults(folder, config, tokenizer)
  const embedding = await folderEmbedding(folder)
  const decoder = await openOnnxDecoder(files, pacer)
  return { model: { kind: 'decoder', decoder }, tokenizer, generation, embedding }
}

/**
 * Reads config and weights of a language model, but not its tokenizer.
 * @param source - a folder with config.json and safetensors, or a GGUF file
 * @throws SparkError as {@link readModelFiles}
 */
export async function readModel(source: string, pacer: Pacer): Promise<OpenedModel> {
  const { model } = (await isDirectory(source))
    ? await openFolder(source, pacer)
    : await openGguf(source, pacer)
  return model
}

async function openFolder(folder: string, pacer: Pacer): Promise<{ json: unknown; model: OpenedModel }> {
  const file = path.join(folder, 'config.json')
  if (!(await isThere(file)))
    throw new SparkError('ERR_IO', `${folder} has no config.json: give the folder of a language model`)
  const json = await readJson(file)
  const [{ readModelConfig }, { loadFolderWeights }] = await Promise.all([
    import('../architectures/model-config.js'),
    import('./folder-weights.js'),
  ])
  const config = readModelConfig(json, file)
  return { json, model: opened(config, await loadFolderWeights(folder, pacer)) }
}

async function openGguf(file: string, pacer: Pacer): Promise<{ gguf: GgufFile; model: OpenedModel }> {
  const [{ readGguf }, { configOfGguf }, { readModelConfig }, { loadGgufWeights }] = await Promise.all([
    import('../../io/gguf/gguf.js'),
    import('../architectures/gguf-config.js'),
    import('../architectures/model-config.js'),
    import('./gguf-weights.js'),
  ])
  const gguf = await readGguf(file)
  const config = readModelConfig(await configOfGguf(gguf), file)
  return { gguf, model: opened(config, await loadGgufWeights(gguf, pacer)) }
}

async function readFolder(folder: string, pacer: Pacer): Promise<ModelFiles> {
  const { json, model } = await openFolder(folder, pacer)
  const [{ folderDefaults }, { folderEmbedding }] = await Promise.all([
    import('./generation-defaults.js'),
    import('../embedding/embedding-defaults.js'),
  ])
  const tokenizer = await TextTokenizer.load(folder)
  const generation = await folderDefaults(folder, json, tokenizer)
  return { model, tokenizer, generation, embedding: await folderEmbedding(folder) }
}

async function readGgufModel(file: string, pacer: Pacer): Promise<ModelFiles> {
  const { gguf, model } = await openGguf(file, pacer)
  const [{ ggufDefaults }, { ggufEmbedding }] = await Promise.all([
    import('./generation-defaults.js'),
    import('../embedding/embedding-defaults.js'),
  ])
  const metadata = new Map([...gguf.metadata].map(([key, { value }]) => [key, value]))
  const tokenizer = await TextTokenizer.fromGguf(metadata)
  const generation = ggufDefaults(gguf, tokenizer)
  return { model, tokenizer, generation, embedding: ggufEmbedding(gguf) }
}
