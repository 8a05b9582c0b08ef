// Kernels in a process that may grow by no more than some MB: they run or say ERR_OUT_OF_MEMORY, whatever thread meets the limit.
import { execFileSync } from 'node:child_process'
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'

const noPrlimit = (() => {
  try {
    execFileSync('prlimit', ['--version'], { stdio: 'ignore' })
    return false
  } catch {
    return 'no prlimit'
  }
})()

/** Outcomes of running `op`, after `before`, in a process that may grow by ever more MB, at last by any number. */
const script = (op: string, args: string, threads: number, before = ''): string => `
  import { execFileSync, spawn } from 'node:child_process'
  import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeSync } from 'node:fs'
  import { tmpdir } from 'node:os'
  import path from 'node:path'
  import { requireAddon } from '#lib/native.js'
  const addon = requireAddon()
  // A shell changes the limit: Node.js may lack the memory to start a program under it.
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-limit-'))
  execFileSync('mkfifo', ['limits', 'done'], { cwd: folder })
  const loop = 'while read -r limit; do prlimit --pid "$0" --as="$limit:" && echo done; done <limits >done'
  spawn('sh', ['-c', loop, String(process.pid)], { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] })
  const [limits, done] = [openSync(path.join(folder, 'limits'), 'w'), openSync(path.join(folder, 'done'), 'r')]
  rmSync(folder, { recursive: true })
  const answer = Buffer.alloc(8)
  const limit = bytes => {
    writeSync(limits, bytes + '\\n')
    readSync(done, answer)
  }
  const size = () => 1024 * Number(/VmSize:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1])
  const args = ${args}
  addon.setThreads(${threads})
  ${before}
  const seen = []
  for (const megabytes of [2, 4, 8, 16, 64, Infinity]) {
    if (megabytes < Infinity) limit(size() + megabytes * 2 ** 20)
    try {
      addon.run('${op}', args)
      seen.push('ran')
    } catch (error) {
      seen.push(error.code ?? error.message)
    }
    limit('unlimited')
  }
  closeSync(limits)
  console.log(JSON.stringify(seen))`

const rows = 16
const size = 1 << 19
const axis = `outer: ${rows}, size: ${size}, inner: 1, largest: true, lastFirst: false`
const found = (k: number): string =>
  `{ dtype: 'u8', ${axis}, k: ${k}, x: new Uint8Array(${rows * size}), indices: new BigInt64Array(${rows * k}) }`

t.test('the first element of long rows', { skip: noPrlimit }, async t => {
  const seen = (await scriptResult(script('topK', found(1), 8))) as string[]
  t.ok(
    seen.every(outcome => outcome === 'ran'),
    `no memory is needed: ${seen}`,
  )
})

t.test('elements of long rows in order', { skip: noPrlimit }, async t => {
  const seen = (await scriptResult(script('topK', found(1 << 16), 8))) as string[]
  t.ok(seen.includes('ERR_OUT_OF_MEMORY') && seen.at(-1) === 'ran', String(seen))
  t.strictSame(
    seen.filter(outcome => outcome !== 'ran' && outcome !== 'ERR_OUT_OF_MEMORY'),
    [],
  )
})

t.test('products, whose threads need memory of their own', { skip: noPrlimit }, async t => {
  const args = `{
    weight: { format: 'f32', rows: 1024, cols: 1024, data: new Float32Array(1024 * 1024) }, tokens: 1024,
    x: new Float32Array(1024 * 1024), y: new Float32Array(1024 * 1024) }`
  const floats = 'new Float32Array(1 << 24)'
  // Starts the threads.
  const before = `addon.run('unary', { fn: 'neg', dtype: 'f32', count: 1 << 24, x: ${floats}, y: ${floats} })`
  const seen = (await scriptResult(script('linear', args, 64, before))) as string[]
  t.ok(seen.includes('ERR_OUT_OF_MEMORY') && seen.at(-1) === 'ran', String(seen))
  t.strictSame(
    seen.filter(outcome => outcome !== 'ran' && outcome !== 'ERR_OUT_OF_MEMORY'),
    [],
  )
})
