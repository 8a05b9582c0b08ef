// session-file.ts: files of conversations: messages in JSON, or in safetensors with the keys and values of their tokens.
import { createHash } from 'node:crypto'
import path from 'node:path'
import type { ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { readJson } from '../io/read-file.js'
import {
  readSafetensors,
  type SafetensorsFile,
  type SafetensorsTensor,
  writeSafetensors,
} from '../io/safetensors.js'
import type { SafetensorsDType } from '../io/safetensors-header.js'
import { hostTensor } from '../model/values.js'
import type { ChatMessage } from './chat-options.js'
import type { KeptCache } from './generation/kept-cache.js'

/** What a file has. */
export interface SessionContent {
  readonly messages: readonly ChatMessage[]
  readonly cache?: KeptCache | undefined
}

/** Versions of both kinds of files. */
const [jsonVersion, format] = [1, 'dgx-spark session 1']

/** Name of the tensor of the tokens. */
const tokensName = 'tokens'

/** Whether a file has keys and values, by its name. */
export const hasCache = (file: string): boolean => path.extname(file).toLowerCase() === '.safetensors'

const notOurs = (file: string, why: string): SparkError =>
  new SparkError('ERR_FORMAT', `${file} is no session that TextSession.save wrote: ${why}`)

/**
 * Writes a file, which appears whole or not at all.
 * @throws SparkError ERR_IO
 */
export async function writeSession(file: string, { messages, cache }: SessionContent): Promise<void> {
  if (!hasCache(file)) {
    const text = JSON.stringify({ version: jsonVersion, messages }, null, 2)
    await writeFileAtomic(file, [Buffer.from(`${text}\n`)])
    return
  }
  const tensors = new Map<string, SafetensorsTensor>()
  for (const [name, { dtype, shape, data }] of cache?.states ?? [])
    tensors.set(name, {
      dtype: dtype.toUpperCase() as SafetensorsDType,
      shape,
      data: data as SafetensorsTensor['data'],
    })
  const tokens = Int32Array.from(cache?.tokens ?? [])
  tensors.set(tokensName, { dtype: 'I32', shape: [tokens.length], data: tokens })
  const metadata = {
    ...{ format, messages: JSON.stringify(messages) },
    ...(cache && { cacheType: cache.cacheType, fingerprint: cache.fingerprint, long: String(cache.isLong) }),
    sha256: hashOf(tensors),
  }
  await writeSafetensors(file, tensors, { metadata })
}

/** The SHA-256 of all elements, by the names of the tensors. */
function hashOf(tensors: ReadonlyMap<string, SafetensorsTensor>): string {
  const hash = createHash('sha256')
  for (const name of [...tensors.keys()].sort()) {
    const { dtype, shape, data } = tensors.get(name)!
    hash.update(JSON.stringify([name, dtype, shape]))
    hash.update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
  }
  return hash.digest('hex')
}

/**
 * Reads a file.
 * @throws SparkError ERR_IO; ERR_FORMAT that says what is wrong with it
 */
export async function readSession(file: string): Promise<SessionContent> {
  if (!hasCache(file)) {
    const { version, messages } = ((await readJson(file)) ?? {}) as { version?: unknown; messages?: unknown }
    if (version !== jsonVersion) throw notOurs(file, `its version is not ${jsonVersion}`)
    return { messages: expectMessages(file, messages) }
  }
  const content = await readSafetensors(file)
  const { metadata, tensors } = content
  if (metadata.get('format') !== format) throw notOurs(file, `its format is not '${format}'`)
  if (metadata.get('sha256') !== hashOf(tensors)) throw notOurs(file, 'its tensors have been changed')
  return { messages: expectMessages(file, parsed(metadata.get('messages'))), cache: cacheOf(file, content) }
}

function parsed(text = ''): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function expectMessages(file: string, messages: unknown): readonly ChatMessage[] {
  const isList =
    Array.isArray(messages) &&
    messages.every(each => typeof each === 'object' && typeof each?.role === 'string')
  if (!isList) throw notOurs(file, 'its messages are not a list of messages')
  return messages
}

function cacheOf(file: string, { metadata, tensors }: SafetensorsFile): KeptCache | undefined {
  const given = tensors.get(tokensName)
  const tokens =
    given?.dtype === 'I32' && given.shape.length === 1 ? Array.from(given.data, Number) : undefined
  if (!tokens || tokens.some(id => id < 0)) throw notOurs(file, 'its tokens are no list of token ids')
  if (tokens.length === 0) return undefined
  const states = [...tensors]
    .filter(([name]) => name !== tokensName)
    .map(
      ([name, { dtype, shape, data }]) =>
        [name, hostTensor(dtype.toLowerCase() as ElementType, shape, data)] as const,
    )
  const { cacheType = '', fingerprint = '', long } = Object.fromEntries(metadata)
  return { tokens, isLong: long === 'true', cacheType, fingerprint, states: new Map(states) }
}
