// dgx-spark pull: what it prints, downloads, lists; wrong usage; Ctrl-C.
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { commit, type FakeHub, serveHub, sha256 } from '../fixtures/hub/hub-server.js'
import { sendFile } from '../fixtures/hub/server.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')

interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs `dgx-spark pull` without blocking this process, which is the server. */
const pull = (
  hub: FakeHub,
  args: readonly string[],
  start?: (child: { kill(signal: 'SIGINT'): boolean }) => void,
): Promise<Ended> => run(hub, [main, 'pull', ...args], start)

function run(
  { hub, home }: FakeHub,
  args: readonly string[],
  start?: (child: { kill(signal: 'SIGINT'): boolean }) => void,
): Promise<Ended> {
  const env = { PATH: process.env.PATH!, HOME: home, HF_HOME: home, HF_ENDPOINT: hub.base }
  const child = spawn(process.execPath, ['--no-warnings', ...args], { env, timeout: 120_000 })
  start?.(child)
  const texts = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text
    })
  return new Promise(resolve => child.on('close', status => resolve({ status, ...texts })))
}

const gguf = Buffer.from(`GGUF${'x'.repeat(200_001)}`)
const files = { 'README.md': '#', 'm-Q4_K_M.gguf': gguf, 'm-Q8_0.gguf': Buffer.from('GGUF8') }

t.test('list, plan, download', async t => {
  const hub = await serveHub(t, { 'org/m': files })
  const list = await pull(hub, ['hf:org/m', '--list'])
  t.equal(list.status, 0, list.stderr)
  t.match(list.stdout, /m-Q8_0\.gguf .* Q8_0 .* 5 B .* no/)
  const plan = await pull(hub, ['hf:org/m', '--dry-run'])
  t.match(plan.stdout, /m-Q4_K_M\.gguf.*to download: 1 files, 195 KiB/s)
  t.equal(existsSync(path.join(hub.home, 'hub')), false, 'nothing was written')
  const json = JSON.parse((await pull(hub, ['hf:org/m', '--json'])).stdout)
  t.match(json, { uri: 'hf:org/m', format: 'gguf', commit, downloadedBytes: gguf.length })
  t.ok(readFileSync(json.path).equals(gguf))
  t.match((await pull(hub, ['hf:org/m', '--offline'])).stdout, /downloaded +nothing: on this disk/)
})

t.test('the program of the page', async t => {
  const hub = await serveHub(t, { 'Qwen/Qwen3-0.6B-GGUF': { 'Qwen3-0.6B-Q8_0.gguf': gguf } })
  const program = path.resolve(import.meta.dirname, '../fixtures/readme/pull.js')
  t.match(
    (await run(hub, [program])).stdout,
    /Q8_0\.gguf 200005 200005\n.*\/Qwen3-0\.6B-Q8_0\.gguf gguf 1\n$/s,
  )
})

t.test('wrong usage', async t => {
  const hub = await serveHub(t, { 'org/m': files })
  for (const [args, message] of [
    [['org/m'], /expected hf:owner\/name.*did you mean hf:org\/m\?/],
    [['ollama:m', '--revision', 'main'], /--revision is for hf: names/],
  ] as const)
    t.match(await pull(hub, args), { status: 2, stderr: message })
  t.match(await pull(hub, ['hf:org/m:Q4_K_N']), {
    status: 1,
    stderr: /did you mean 'Q4_K_M'\?.*\[ERR_ARGUMENT\]/,
  })
})

t.test('Ctrl-C, and the same command once more', async t => {
  let stop = (): void => {}
  const hub = await serveHub(
    t,
    { 'org/m': files },
    {
      cdnAnswer(request, response, attempt) {
        if (attempt > 0) return false
        sendFile(request, response, gguf, { cut: 100_000 })
        setTimeout(() => stop(), 200)
        return true
      },
    },
  )
  const ended = await pull(hub, ['hf:org/m'], child => {
    stop = () => child.kill('SIGINT')
  })
  t.match(ended, { status: 130, stderr: /interrupted: what has arrived stays/ })
  const partial = path.join(hub.home, 'hub/models--org--m/blobs', `${sha256(gguf)}.dgxspark.incomplete`)
  t.ok(existsSync(partial))
  t.equal((await pull(hub, ['hf:org/m'])).status, 0)
  t.equal(hub.cdn.seen.at(-1)?.range, 'bytes=100000-')
  t.equal(existsSync(partial), false)
})
