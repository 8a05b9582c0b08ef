// model-files.ts: a language model on the disk: a folder of Hugging Face or a GGUF file.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Pacer } from '../../core/paced.js'
import { ioError } from '../../io/atomic-write.js'
import { isThere, readJson } from '../../io/read-file.js'
import type { WeightSource } from '../architectures/config.js'
import type { ModelConfig } from '../architectures/model-config.js'
import type { EmbeddingDefaults } from '../embedding/embedding-defaults.js'
import { TextTokenizer } from '../text-tokenizer.js'
import type { GenerationDefaults } from './generation-defaults.js'

/** What a language model is made of. */
export interface ModelFiles {
  readonly config: ModelConfig
  readonly weights: WeightSource
  readonly tokenizer: TextTokenizer
  readonly generation: GenerationDefaults
  readonly embedding: EmbeddingDefaults
}

/**
 * Reads a language model.
 * @param source - a folder with config.json, weights and tokenizer, or a GGUF file
 * @throws SparkError ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED naming file, key or tensor
 */
export async function readModelFiles(source: string, pacer: Pacer): Promise<ModelFiles> {
  if (await isFolder(source)) return readFolder(source, pacer)
  const { isGguf } = await import('../../io/gguf/is-gguf.js')
  if (await isGguf(source)) return readGgufModel(source, pacer)
  const message = `${source} is no language model: give a folder with config.json, or a GGUF file`
  throw new SparkError('ERR_FORMAT', message)
}

async function isFolder(source: string): Promise<boolean> {
  try {
    return (await stat(source)).isDirectory()
  } catch (error) {
    throw ioError('read', source, error)
  }
}

async function readFolder(folder: string, pacer: Pacer): Promise<ModelFiles> {
  const file = path.join(folder, 'config.json')
  if (!(await isThere(file)))
    throw new SparkError('ERR_IO', `${folder} has no config.json: give the folder of a language model`)
  const json = await readJson(file)
  const [{ readModelConfig }, { loadFolderWeights }, { folderDefaults }, { folderEmbedding }] =
    await Promise.all([
      import('../architectures/model-config.js'),
      import('./folder-weights.js'),
      import('./generation-defaults.js'),
      import('../embedding/embedding-defaults.js'),
    ])
  const config = readModelConfig(json, file)
  const tokenizer = await TextTokenizer.load(folder)
  const generation = await folderDefaults(folder, json, tokenizer)
  const embedding = await folderEmbedding(folder)
  return { config, tokenizer, generation, embedding, weights: await loadFolderWeights(folder, pacer) }
}

async function readGgufModel(file: string, pacer: Pacer): Promise<ModelFiles> {
  const [{ readGguf }, { configOfGguf }, { readModelConfig }, { loadGgufWeights }, defaults, embeddings] =
    await Promise.all([
      import('../../io/gguf/gguf.js'),
      import('../architectures/gguf-config.js'),
      import('../architectures/model-config.js'),
      import('./gguf-weights.js'),
      import('./generation-defaults.js'),
      import('../embedding/embedding-defaults.js'),
    ])
  const gguf = await readGguf(file)
  const config = readModelConfig(await configOfGguf(gguf), file)
  const metadata = new Map([...gguf.metadata].map(([key, { value }]) => [key, value]))
  const tokenizer = await TextTokenizer.fromGguf(metadata)
  const generation = defaults.ggufDefaults(gguf, tokenizer)
  const embedding = embeddings.ggufEmbedding(gguf)
  return { config, tokenizer, generation, embedding, weights: await loadGgufWeights(gguf, pacer) }
}
