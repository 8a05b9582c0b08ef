// command-line.js: options of scripts, with one-line errors.
import { parseArgs } from 'node:util'

/**
 * As `parseArgs` of Node.js, but wrong usage ends the process with code 2.
 * @template {import('node:util').ParseArgsConfig} T
 * @param {T} config
 * @returns {ReturnType<typeof parseArgs<T>>}
 */
export function parseCommandLine(config) {
  try {
    return parseArgs(config)
  } catch (error) {
    console.error(/** @type {Error} */ (error).message)
    process.exit(2)
  }
}
