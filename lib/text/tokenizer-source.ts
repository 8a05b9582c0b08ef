// tokenizer-source.ts: what a tokenizer is made of, from the files of a model.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../core/errors.js'
import { ioError } from '../io/atomic-write.js'
import { isThere, readBytes, readJson, readText } from '../io/read-file.js'
import { asTokenizerJson, type TokenizerSource } from './tokenizer-json.js'

const names = ['bos', 'eos', 'pad', 'unk'] as const

/** A token of tokenizer_config.json: a text, or an object with one. */
function contentOf(token: unknown): string | undefined {
  if (typeof token === 'string') return token
  const { content } = (token ?? {}) as { content?: unknown }
  return typeof content === 'string' ? content : undefined
}

/** The template of tokenizer_config.json; of several the one named default. */
function templateOf(template: unknown): string | undefined {
  if (!Array.isArray(template)) return typeof template === 'string' ? template : undefined
  const found = template.find(({ name }) => name === 'default') ?? template[0]
  return typeof found?.template === 'string' ? found.template : undefined
}

/** From the objects of tokenizer.json and tokenizer_config.json. */
export function sourceOfJson(tokenizer: unknown, config: object): TokenizerSource {
  const settings = config as Record<string, unknown>
  const special = names.flatMap(name => {
    const content = contentOf(settings[`${name}_token`])
    return content === undefined ? [] : [[name, content]]
  })
  return {
    json: asTokenizerJson(tokenizer),
    special: Object.fromEntries(special),
    chatTemplate: templateOf(settings.chat_template),
  }
}

async function readFolder(folder: string): Promise<TokenizerSource> {
  const inFolder = (name: string): string => path.join(folder, name)
  const file = inFolder('tokenizer.json')
  const config = (await isThere(inFolder('tokenizer_config.json')))
    ? ((await readJson(inFolder('tokenizer_config.json'))) as object)
    : {}
  const source = sourceOfJson(await readJson(file), config ?? {})
  const template = inFolder('chat_template.jinja')
  return (await isThere(template)) ? { ...source, chatTemplate: await readText(template) } : source
}

/** Whether a path is a file. */
async function isFile(given: string): Promise<boolean> {
  try {
    return (await stat(given)).isFile()
  } catch (error) {
    throw ioError('read', given, error)
  }
}

async function readSentencePiece(file: string): Promise<TokenizerSource> {
  const { sourceOfSentencePiece } = await import('./sentence-piece.js')
  return sourceOfSentencePiece(await readBytes(file))
}

/**
 * From a folder of a model, or from one of its files.
 * @throws SparkError ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED
 */
export async function readTokenizer(given: string): Promise<TokenizerSource> {
  if (await isFile(given)) {
    if (given.endsWith('.model')) return readSentencePiece(given)
    return path.basename(given) === 'tokenizer.json'
      ? readFolder(path.dirname(given))
      : sourceOfJson(await readJson(given), {})
  }
  if (await isThere(path.join(given, 'tokenizer.json'))) return readFolder(given)
  const sentencePiece = path.join(given, 'tokenizer.model')
  if (await isThere(sentencePiece)) return readSentencePiece(sentencePiece)
  throw new SparkError('ERR_IO', `${given} has neither a tokenizer.json nor a tokenizer.model`)
}
