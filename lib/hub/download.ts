// download.ts: downloads of files: resumed, verified, retried, once for all processes.
import path from 'node:path'
import { argumentError, expectInteger, expectKnownOptions, expectSignal, expectText } from '../core/checks.js'
import { makeFolder } from '../io/atomic-write.js'
import { lockFile } from '../io/lock.js'
import type { DownloadProgress } from './transfer.js'

export type { DownloadProgress } from './transfer.js'

/** Options of {@link downloadFile}. */
export interface DownloadFileOptions {
  /** SHA-256 of the file, in hexadecimal digits. Default: it is not verified. */
  readonly sha256?: string
  /** Attempts without progress. Default: 5. */
  readonly attempts?: number
  /** Ends the download; what has arrived stays for the next one. */
  readonly signal?: AbortSignal
  /** Is told about progress. */
  readonly onProgress?: (progress: DownloadProgress) => void
}

/**
 * Downloads a file, unless it is there. It is written beside `file`, with `.part` behind its name, and renamed once it is
 * complete, so that a download that was interrupted goes on where it was. Of several processes one downloads and the others wait.
 * @param url - http: or https:
 * @returns whether it was downloaded
 * @throws SparkError ERR_ARGUMENT; ERR_IO when the server or the disk refuses, with the last reason after all attempts;
 * ERR_FORMAT when the file does not have the SHA-256; the reason of `signal` when it is aborted
 */
export async function downloadFile(
  url: string | URL,
  file: string,
  options: DownloadFileOptions = {},
): Promise<boolean> {
  expectText('file', file)
  expectKnownOptions('options', options, ['sha256', 'attempts', 'signal', 'onProgress'])
  const { sha256, attempts, signal, onProgress } = options
  if (attempts !== undefined) expectInteger('options.attempts', attempts, 1)
  expectSignal('options.signal', signal)
  if (sha256 !== undefined && !/^[0-9a-f]{64}$/i.test(sha256))
    throw argumentError('options.sha256', '64 hexadecimal digits', sha256)
  const source = URL.canParse(String(url)) ? new URL(String(url)) : undefined
  if (!source || !/^https?:$/.test(source.protocol)) throw argumentError('url', 'an http: or https: URL', url)
  const target = path.resolve(file)
  await makeFolder(path.dirname(target))
  const [{ transfer, usualAttempts }, { parseDigest }] = [
    await import('./transfer.js'),
    await import('./digest.js'),
  ]
  return transfer({
    url: source,
    target,
    file: `${target}.part`,
    digest: parseDigest(sha256?.toLowerCase()),
    lock: () => lockFile(target),
    attempts: attempts ?? usualAttempts,
    signal,
    onProgress,
  })
}
