// select-files.ts: which files of a repository a model needs.
import { nearestName } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import { type GgufModel, ggufModels, isSideFile, usualQuantizations } from './gguf-names.js'

/** What the files of a model are. */
export type ModelFormat = 'safetensors' | 'gguf' | 'onnx' | 'file'

/** The files of a model. */
export interface Selection<F> {
  readonly format: ModelFormat
  readonly files: readonly F[]
  /** What a loader opens: a file or a folder, relative to the repository; '' for the repository itself. */
  readonly entry: string
}

interface Named {
  readonly name: string
}

/** Small files at the top that say what the weights are. */
const settings = [
  /^(config|generation_config|hf_quant_config|quant_config|quantize_config|adapter_config|params)\.json$/,
  /^(special_tokens_map|added_tokens|vocab|preprocessor_config|processor_config)\.json$/,
  /^tokenizer[\w.-]*\.(json|model)$/,
  /^(merges|vocab)\.txt$/,
  /^[\w.-]*(spiece|sentencepiece|bpe)[\w.-]*\.model$/,
  /^chat_template\.(jinja|json)$/,
  /^additional_chat_templates\/[^/]+\.jinja$/,
]

/** Files of sentence-transformers: what follows the encoder. */
const sentences =
  /^((modules|sentence_bert_config|config_sentence_transformers)\.json|\d+_\w+\/(config\.json|model\.safetensors))$/

const isSetting = (name: string): boolean => settings.some(pattern => pattern.test(name))

/**
 * The files of a model. Without `wanted` a folder of safetensors, else GGUF in a usual quantization, else ONNX.
 * @param wanted - a file, a folder, a quantization of GGUF (`Q4_K_M`), or `onnx/q4`
 * @param label - the repository, for messages
 * @throws SparkError ERR_ARGUMENT for what is not there, with what is; ERR_UNSUPPORTED for a repository without a model;
 * ERR_FORMAT where parts are missing
 */
export function selectFiles<F extends Named>(
  files: readonly F[],
  wanted: string | undefined,
  label: string,
): Selection<F> {
  if (wanted !== undefined) return selectWanted(files, wanted, label)
  const weights = safetensorsOf(files)
  if (weights.length > 0) {
    const rest = files.filter(({ name }) => isSetting(name) || sentences.test(name))
    return { format: 'safetensors', files: [...rest, ...weights], entry: '' }
  }
  const models = ggufModels(files).filter(({ stem }) => !isSideFile(stem))
  if (models.length > 0) return usualGguf(models, label)
  if (files.some(({ name }) => name === 'genai_config.json'))
    return { format: 'onnx', files: files.filter(({ name }) => !name.includes('/')), entry: '' }
  if (onnxOf(files).length > 0) return selectOnnx(files, 'fp32', label)
  const others = files.filter(({ name }) => /\.(bin|pt|pth|h5|msgpack|ckpt)$/.test(name))
  const found = others.length > 0 ? `, but ${listed(others.map(({ name }) => name))}` : ''
  throw new SparkError('ERR_UNSUPPORTED', `${label} has no safetensors, GGUF or ONNX files${found}`)
}

/** Weights at the top: one file, or else its shards; other copies (consolidated, model.fp16) only where there is nothing else. */
function safetensorsOf<F extends Named>(files: readonly F[]): F[] {
  const all = files.filter(({ name }) => /^[^/]+\.safetensors$/.test(name))
  const indices = files.filter(({ name }) => /^[^/]+\.safetensors\.index\.json$/.test(name))
  const whole = all.filter(({ name }) => /^(model|adapter_model)\.safetensors$/.test(name))
  if (whole.length > 0) return whole
  const shards = all.filter(({ name }) => /^model-\d+-of-\d+\.safetensors$/.test(name))
  if (shards.length === 0) return [...all, ...(all.length > 0 ? indices : [])]
  return [...shards, ...indices.filter(({ name }) => name === 'model.safetensors.index.json')]
}

function selectWanted<F extends Named>(files: readonly F[], wanted: string, label: string): Selection<F> {
  const models = ggufModels(files)
  const file = files.find(({ name }) => name === wanted)
  if (file) {
    const model = models.find(each => each.files.includes(file))
    if (model) return ggufSelection(model, label)
    if (/\.onnx$/i.test(wanted)) return onnxSelection(files, file)
    return { format: 'file', files: [file], entry: wanted }
  }
  const [, dtype] = /^onnx(?:\/(\w+))?$/.exec(wanted) ?? []
  if (/^onnx(\/\w+)?$/.test(wanted) && onnxOf(files).length > 0)
    return selectOnnx(files, dtype ?? 'fp32', label)
  const named = modelsOf(models, wanted)
  if (named.length > 0) return onlyGguf(named, wanted, label)
  const below = files.filter(({ name }) => name.startsWith(`${wanted}/`))
  if (below.length > 0) return folderSelection(below, wanted)
  throw missing(files, models, wanted, label)
}

/** All files of a folder. */
function folderSelection<F extends Named>(files: readonly F[], folder: string): Selection<F> {
  const has = (pattern: RegExp): boolean => files.some(({ name }) => pattern.test(name))
  const format = has(/\.onnx$/) ? 'onnx' : has(/\.safetensors$/) ? 'safetensors' : 'file'
  return { format, files, entry: folder }
}

/** The models of a quantization; `Q4_K_XL` is also UD-Q4_K_XL where there is no other. */
function modelsOf<F>(models: readonly GgufModel<F>[], quantization: string): GgufModel<F>[] {
  const name = quantization.toUpperCase()
  const main = models.filter(({ stem }) => !isSideFile(stem))
  const exact = main.filter(model => model.quantization === name)
  return exact.length > 0 ? exact : main.filter(model => model.quantization === `UD-${name}`)
}

function usualGguf<F extends Named>(models: readonly GgufModel<F>[], label: string): Selection<F> {
  if (models.length === 1) return ggufSelection(models[0]!, label)
  for (const name of usualQuantizations) {
    const found = models.filter(({ quantization }) => quantization === name)
    if (found.length > 0) return onlyGguf(found, name, label)
  }
  const names = models.map(({ quantization, stem }) => quantization || `${stem}.gguf`)
  throw new SparkError(
    'ERR_ARGUMENT',
    `${label} has several GGUF models, name one, such as ${label}:${names[0]}: ${listed(names)}`,
  )
}

function onlyGguf<F extends Named>(
  models: readonly GgufModel<F>[],
  quantization: string,
  label: string,
): Selection<F> {
  if (models.length === 1) return ggufSelection(models[0]!, label)
  const names = models.map(({ files }) => files[0]!.name)
  throw new SparkError(
    'ERR_ARGUMENT',
    `${label} has several models in ${quantization}, name the file of one: ${listed(names)}`,
  )
}

function ggufSelection<F extends Named>(model: GgufModel<F>, label: string): Selection<F> {
  const { files, count, stem } = model
  if (files.length !== count)
    throw new SparkError('ERR_FORMAT', `${label} has ${files.length} of ${count} parts of ${stem}`)
  return { format: 'gguf', files, entry: files[0]!.name }
}

const onnxOf = <F extends Named>(files: readonly F[]): F[] =>
  files.filter(({ name }) => /^onnx\/[^/]+\.onnx$/.test(name))

/** Behind the names of files of a dtype, as optimum and transformers.js name them. */
const suffixes: Readonly<Record<string, readonly string[]>> = {
  fp32: [''],
  q8: ['_quantized', '_int8'],
  int8: ['_int8', '_quantized'],
}

/** Names of the decoder, best first. */
const decoders = ['model', 'decoder_model_merged', 'decoder_with_past_model', 'decoder_model']

function selectOnnx<F extends Named>(files: readonly F[], dtype: string, label: string): Selection<F> {
  const models = onnxOf(files)
  for (const suffix of suffixes[dtype] ?? [`_${dtype}`])
    for (const decoder of decoders) {
      const file = models.find(({ name }) => name === `onnx/${decoder}${suffix}.onnx`)
      if (file) return onnxSelection(files, file)
    }
  const names = models.map(({ name }) => name)
  throw new SparkError(
    'ERR_ARGUMENT',
    `${label} has no decoder in ${dtype}, name a file, such as ${label}:${names[0]}: ${listed(names)}`,
  )
}

/** An ONNX file with its external data and what lies at the top of the repository. */
function onnxSelection<F extends Named>(files: readonly F[], model: F): Selection<F> {
  const isData = (name: string): boolean =>
    name.startsWith(model.name) && /^[._]data/.test(name.slice(model.name.length))
  const rest = files.filter(({ name }) => isSetting(name) || isData(name))
  return { format: 'onnx', files: [...rest, model], entry: model.name }
}

function missing<F extends Named>(
  files: readonly F[],
  models: readonly GgufModel<F>[],
  wanted: string,
  label: string,
): SparkError {
  const quantizations = [...new Set(models.map(model => model.quantization).filter(Boolean))]
  const names = files.map(({ name }) => name)
  const near = nearestName(wanted.toUpperCase(), quantizations) ?? nearestName(wanted, names)
  const hint = near === undefined ? '' : ` (did you mean '${near}'?)`
  const has =
    quantizations.length > 0
      ? `quantizations ${listed(quantizations)}`
      : `files ${listed(names.filter(name => !/^\.|\.(md|png|jpe?g)$/i.test(name)))}`
  return new SparkError(
    'ERR_ARGUMENT',
    `${label} has no file, folder or quantization '${wanted}'${hint}; it has ${has}`,
  )
}

/** Names that a message lists at most. */
const maxListed = 40

function listed(names: readonly string[]): string {
  const rest = names.length - maxListed
  return `${names.slice(0, maxListed).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}
