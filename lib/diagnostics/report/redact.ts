// redact.ts: takes out of a text what tells whose machine it is from.
import { homedir, hostname, tmpdir, userInfo } from 'node:os'
import { packageFolder } from '../../core/package-folder.js'

/** What is private about this process. */
export interface Identity {
  /** Names of the machine and of the user, as whole words. */
  readonly names: readonly string[]
  /** Folders, wherever they stand. */
  readonly folders: readonly string[]
}

/** The identity of this process. */
export function identity(): Identity {
  const host = hostname()
  const folders = [homedir(), process.cwd(), packageFolder() ?? '', tmpdir()]
  return {
    names: [host, host.split('.')[0]!, userName()].filter(name => name !== '' && name !== 'localhost'),
    // Longer ones first: a folder may lie in another one.
    folders: folders.filter(folder => folder.length > 1).sort((a, b) => b.length - a.length),
  }
}

/** The name of the user; a container may run as one that has none. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return ''
  }
}

const uuid = /\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi
const hardwareAddress = /\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}\b/gi
/** Paths from a root on, of which the last part is kept; not addresses of web pages. */
const posixPath = /(?<![\w.:/])\/(?:[^\s/:;,'"`()<>]+\/)+(?=[^\s/:;,'"`()<>])/g
const windowsPath = /\b[a-z]:\\(?:[^\s\\:;,'"`()<>]+\\)*/gi
const word = /[\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)*/gu

/** A text without names, folders, uuids and hardware addresses. Of a path its last part is left. */
export function redact(text: string, { names, folders }: Identity): string {
  const own = new Set(names.map(name => name.toLowerCase()))
  let shown = text
  for (const folder of folders) shown = shown.replaceAll(folder, '…')
  return shown
    .replace(/…[/\\](?:[^\s/\\:;,'"`()<>]+[/\\])*/g, '')
    .replace(posixPath, '')
    .replace(windowsPath, '')
    .replace(uuid, '<uuid>')
    .replace(hardwareAddress, '<address>')
    .replace(word, found => (own.has(found.toLowerCase()) ? '<name>' : found))
}
