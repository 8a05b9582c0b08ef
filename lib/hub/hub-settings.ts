// hub-settings.ts: the Hugging Face hub as its own tools find it: address, token, cache, offline mode.
import { readFileSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { argumentError } from '../core/checks.js'

/** A variable of the environment that is not empty. */
export const variable = (name: string): string | undefined => process.env[name]?.trim() || undefined

/** A path of the environment, whose ~ is the home of the user. */
export function pathOf(name: string): string | undefined {
  const value = variable(name)
  return value === undefined ? undefined : path.resolve(value.replace(/^~(?=$|[/\\])/, homedir()))
}

/** The address of the hub: HF_ENDPOINT, or https://huggingface.co. */
export function hubEndpoint(): URL {
  const text = variable('HF_ENDPOINT') ?? 'https://huggingface.co'
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url && /^https?:$/.test(url.protocol)) return url
  throw argumentError('HF_ENDPOINT', 'an http: or https: URL', text)
}

/** Whether HF_HUB_OFFLINE forbids requests. */
export const isHubOffline = (): boolean => /^(1|on|yes|true)$/i.test(variable('HF_HUB_OFFLINE') ?? '')

/** HF_HOME, or the folder that is it by default. */
const hubHome = (): string =>
  pathOf('HF_HOME') ?? path.join(pathOf('XDG_CACHE_HOME') ?? path.join(homedir(), '.cache'), 'huggingface')

/** The folder of models and data sets that all tools of the hub share. */
export const hubCacheFolder = (): string => pathOf('HF_HUB_CACHE') ?? path.join(hubHome(), 'hub')

/** Bytes of a file with a token; larger ones hold something else. */
const maxTokenBytes = 1 << 16

/** The token of the user: HF_TOKEN, or what `hf auth login` has written. */
export function hubToken(): string | undefined {
  return variable('HF_TOKEN') ?? tokenOfFile(pathOf('HF_TOKEN_PATH') ?? path.join(hubHome(), 'token'))
}

function tokenOfFile(file: string): string | undefined {
  try {
    const found = statSync(file)
    if (found.isFile() && found.size <= maxTokenBytes) return readFileSync(file, 'utf8').trim() || undefined
  } catch {
    // Nobody has logged in.
  }
  return undefined
}
