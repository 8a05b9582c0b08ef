// is-gguf.ts: GGUF files by their first bytes.
import { fill, openFile } from '../read-file.js'

/**
 * Whether a file begins as a GGUF file does.
 * @throws SparkError ERR_IO when it cannot be read
 */
export async function isGguf(file: string): Promise<boolean> {
  const handle = await openFile(file)
  try {
    const { size } = await handle.stat()
    const start = Buffer.alloc(Math.min(4, size))
    await fill(handle, file, start, 0)
    return start.toString('latin1') === 'GGUF'
  } finally {
    await handle.close()
  }
}
