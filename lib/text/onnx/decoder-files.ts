// decoder-files.ts: folders of decoders in ONNX: those of optimum and onnx-community, and of onnxruntime-genai.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { ioError } from '../../io/atomic-write.js'
import { isThere, readJson } from '../../io/read-file.js'
import { ConfigReader } from '../architectures/config-reader.js'
import { type PortNames, usualNames } from './decoder-ports.js'
import type { RaggedOptions } from './ragged-graph.js'

/** A decoder in ONNX and what its configuration says. */
export interface OnnxFiles {
  /** The model. */
  readonly file: string
  /** Where tokenizer and configuration are. */
  readonly folder: string
  /** The configuration file and what is in it. */
  readonly configFile: string
  readonly config: unknown
  readonly isGenai: boolean
  /** `model_type`, as transformers or onnxruntime-genai name it. */
  readonly type: string
  readonly options: RaggedOptions
}

/** Models of an onnx folder, the one that is taken first in front: f32 before what is rounded. */
const usualFiles = [
  'model.onnx',
  'decoder_model_merged.onnx',
  'model_fp16.onnx',
  'decoder_model_merged_fp16.onnx',
  'model_q4f16.onnx',
  'model_q4.onnx',
  'model_quantized.onnx',
  'decoder_model_merged_quantized.onnx',
  'model_int8.onnx',
  'model_uint8.onnx',
  'model_bnb4.onnx',
]

/**
 * Looks for a decoder in ONNX.
 * @param source - its folder, or one of the models in it
 * @returns undefined for a folder without one
 * @throws SparkError ERR_IO; ERR_FORMAT naming file and key; ERR_UNSUPPORTED for models of several parts
 */
export async function findOnnxDecoder(source: string): Promise<OnnxFiles | undefined> {
  const isFile = source.endsWith('.onnx')
  const folder = isFile ? await configFolder(path.dirname(source)) : source
  const genai = path.join(folder, 'genai_config.json')
  if (await isThere(genai)) return genaiFiles(folder, genai, isFile ? source : undefined)
  const file = isFile ? source : await modelFile(folder)
  return file === undefined ? undefined : huggingFaceFiles(folder, file)
}

/** The folder of a configuration: that of the model, or the one above it. */
async function configFolder(folder: string): Promise<string> {
  const isOwn = await Promise.all(
    ['config.json', 'genai_config.json'].map(name => isThere(path.join(folder, name))),
  )
  return isOwn.includes(true) ? folder : path.dirname(folder)
}

/** The model of a folder, or of its folder `onnx`. */
async function modelFile(folder: string): Promise<string | undefined> {
  for (const inside of [path.join(folder, 'onnx'), folder]) {
    if (!(await isThere(inside))) continue
    const names = await namesOf(inside)
    const name = usualFiles.find(usual => names.includes(usual))
    if (name !== undefined) return path.join(inside, name)
  }
  return undefined
}

async function namesOf(folder: string): Promise<string[]> {
  try {
    return await readdir(folder)
  } catch (error) {
    throw ioError('read', folder, error)
  }
}

async function huggingFaceFiles(folder: string, file: string): Promise<OnnxFiles> {
  const configFile = path.join(folder, 'config.json')
  const config = await readJson(configFile)
  const outer = new ConfigReader(config, configFile)
  const inner = outer.has('text_config') ? outer.object('text_config') : outer
  const first = (...keys: string[]): number | undefined => {
    const key = keys.find(name => inner.has(name))
    return key === undefined ? undefined : inner.integer(key)
  }
  const heads = first('num_attention_heads', 'n_head', 'num_heads')
  const hiddenSize = first('hidden_size', 'n_embd', 'd_model')
  const usual = heads && hiddenSize && hiddenSize % heads === 0 ? hiddenSize / heads : undefined
  const contextLength = first('max_position_embeddings', 'n_positions', 'n_ctx', 'max_seq_len', 'seq_length')
  if (contextLength === undefined)
    throw new SparkError('ERR_FORMAT', `${configFile} has no max_position_embeddings, which its model needs`)
  return {
    ...{ file, folder, configFile, config, isGenai: false, type: outer.text('model_type') },
    options: {
      names: usualNames,
      ...{ contextLength, heads, vocabularySize: first('vocab_size') },
      kvHeads: first('num_key_value_heads') ?? heads,
      headSize: first('head_dim') ?? usual,
    },
  }
}

async function genaiFiles(folder: string, configFile: string, given: string | undefined): Promise<OnnxFiles> {
  const config = await readJson(configFile)
  const model = new ConfigReader(config, configFile).object('model')
  const decoder = model.object('decoder')
  if (decoder.has('pipeline'))
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${decoder.nameOf('pipeline')}: models in several parts are not supported`,
    )
  const optional = (key: string): number | undefined => (decoder.has(key) ? decoder.integer(key) : undefined)
  return {
    file: given ?? path.join(folder, decoderName(decoder)),
    ...{ folder, configFile, config, isGenai: true, type: model.text('type') },
    options: {
      names: genaiNames(decoder),
      contextLength: model.integer('context_length'),
      vocabularySize: model.has('vocab_size') ? model.integer('vocab_size') : undefined,
      heads: optional('num_attention_heads'),
      ...{ kvHeads: optional('num_key_value_heads'), headSize: optional('head_size') },
    },
  }
}

function decoderName(decoder: ConfigReader): string {
  const name = decoder.text('filename', 'model.onnx')
  if (name === path.basename(name) && name !== '..') return name
  throw new SparkError(
    'ERR_FORMAT',
    `${decoder.nameOf('filename')} is '${name}'; it must be a file beside the configuration`,
  )
}

function genaiNames(decoder: ConfigReader): PortNames {
  const [inputs, outputs] = [decoder.object('inputs'), decoder.object('outputs')]
  const patterns = (key: string, usual: readonly string[]): readonly string[] =>
    inputs.has(key) ? [inputs.text(key)] : usual
  return {
    ids: inputs.text('input_ids', usualNames.ids),
    mask: inputs.text('attention_mask', usualNames.mask),
    positions: inputs.text('position_ids', usualNames.positions),
    logits: outputs.text('logits', usualNames.logits),
    keys: patterns('past_key_names', usualNames.keys),
    values: patterns('past_value_names', usualNames.values),
    pairs: patterns('past_names', usualNames.pairs),
  }
}
