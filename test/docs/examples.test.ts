// The programs of README and docs, run in the order in which they build on each other, and the commands beside them.
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Adapter, Model } from 'dgx-spark'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { blocks, commands, pages, root } from '../fixtures/docs/pages.js'
import { drive } from '../fixtures/route/write-log.js'
import { writeChatModel } from '../fixtures/text/chat-model.js'
import { writeEncoderFolder } from '../fixtures/text/encoder-folder.js'

const folder = path.join(root, 'test/fixtures/readme')
const skip = !loadAddon().addon && 'too slow without the addon'

/** Commands that test/cli runs at length; here only their options are looked up. */
const atLength = [
  'chat',
  'generate',
  'demo',
  'finetune',
  'inspect-route',
  'monitor',
  'verify',
  'data download',
  'up',
  'invite',
  'node',
  'links',
  'place',
  'token create',
  'token list',
  'audit show',
  'audit verify',
  'service install',
]

function run(args: readonly string[], cwd: string): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--no-warnings', ...args], {
    cwd,
    env: { ...process.env, DGX_SPARK_BACKEND: 'cpu' },
    encoding: 'utf8',
    timeout: 300_000,
  })
  return { status, output: stdout + stderr }
}

/** What a utility process of Electron has besides Node.js: a port, on which a message waits. */
const electron = `process.parentPort = {
  on: (_, listener) => listener({ data: new Float32Array(28 * 28) }),
  postMessage: console.log,
}`

t.test('every program of a page is one of those that run here', async t => {
  const programs = readdirSync(folder)
    .filter(name => name.endsWith('.js'))
    .map(name => readFileSync(path.join(folder, name), 'utf8'))
  const shown = pages.flatMap(page => blocks(page, 'js').map(block => ({ page, block })))
  for (const { page, block } of shown) t.ok(programs.includes(block), `${page.name}: ${block.slice(0, 60)}`)
  for (const program of programs)
    t.ok(
      shown.some(({ block }) => block === program),
      program.slice(0, 60),
    )
})

t.test('programs and commands', { skip }, async t => {
  const cwd = t.testdir()
  const { untrained } = await import(path.join(root, 'examples/finetune-mnist/base.js'))
  const base = await Model.fromGraph(untrained(), { backend: 'cpu' })
  await base.save(path.join(cwd, 'base.onnx'))
  await base.save(path.join(cwd, 'model.onnx'))
  const program = (name: string): string => {
    const { status, output } = run([path.join(folder, `${name}.js`)], cwd)
    t.equal(status, 0, `${name}.js: ${output}`)
    return output
  }
  t.match(program('run'), /^cpu .*\na \d, read as \d$/m)
  t.match(program('feeds'), /scores.* ms/s)
  t.match(program('tensors'), /Tensor f32 \[3, 3\]\n\[\[.*i64/s)
  t.match(program('graph'), /scores: Tensor f32 \[2, 3\]/)
  t.match(program('hardware'), /^(true|false) /)
  t.match(program('errors'), 'missing.onnx')
  t.match(program('layer'), '[ 512 ]')
  for (const name of ['adapt', 'finetune']) {
    program(name)
    const adapter = await Adapter.load(base, path.join(cwd, 'negatives'))
    const moved = adapter.modules.filter(({ name }) =>
      adapter.read(`${name}.lora_B`).some(value => value !== 0),
    )
    t.equal(moved.length, 4, `${name}: every module has learned something`)
  }
  const merged = program('merge')
    .match(/-?\d+\.\d+(e-?\d+)?/g)!
    .map(Number)
  t.equal(merged.length, 20)
  for (let i = 0; i < 10; i++) t.ok(Math.abs(merged[i]! - merged[i + 10]!) < 1e-4, `score ${i}`)
  program('lora')
  t.equal((await Adapter.load(base, path.join(cwd, 'lora'))).config.useDora, false)
  t.match(
    run([path.join(root, 'dist/cli/main.js'), 'run', 'tuned.onnx', '--runs', '1'], cwd).output,
    'scores',
  )
  base.dispose()
  writeChatModel(path.join(cwd, 'chat-model'))
  t.match(program('text'), /^45 tokens: user\nWhat does <\|im_end\|> mean\?\nassistant\n\n/)
  t.match(program('generate'), /length 20 72\n64 tokens of the prompt were there already\n-?0\.\d+\n\d+/)
  t.match(
    program('session'),
    /^\d+ tokens came with the file\n\d+ tokens of the prompt were there already\n$/,
  )
  t.match(program('targets'), /fc1 8\n.*in 3 modules/s)
  t.match(program('round-trip'), /^4 4\nFloat32Array\(10\)/)
  t.match(program('benchmark'), /inferences\/s.*bf16 against.*onnxruntime cpu against.*of 20 frames/s)
  t.match(program('from-onnxruntime'), /^\[ 1, 10 \] Float32Array\(10\)/)
  await writeEncoderFolder(path.join(cwd, 'encoder'))
  t.match(program('embed'), /^24 elements; true$/m)
  t.match(program('gguf'), /^llama 1\nQ4_K \[ 32, 256 \] 4608\n8192\n/)
  program('save-data')
  copyFileSync(path.join(folder, 'batches.js'), path.join(cwd, 'batches.mjs'))
  for (const data of ['digits.safetensors', 'batches.mjs']) {
    const main = path.join(root, 'dist/cli/main.js')
    const options = ['--model', 'base.onnx', '--data', data, '--output', 'adapter', '--dry-run']
    t.match(run([main, 'finetune', ...options], cwd), { status: 0, output: /one step works/ }, data)
  }
  writeFileSync(path.join(cwd, 'electron.mjs'), electron)
  const { output: scores } = run(['--import', './electron.mjs', path.join(folder, 'electron.js')], cwd)
  t.match(scores, 'Float32Array(10)')

  const segment = path.join(cwd, 'drives', 'a2a0ccea32023010_2023-07-27--13-01-19--0')
  mkdirSync(segment, { recursive: true })
  writeFileSync(path.join(segment, 'rlog'), drive(3))
  t.match(
    program('signals'),
    /^59 rows from a2a0ccea32023010\|2023.*\ncarState.vEgo 20\n.*gearShifter unknown/s,
  )

  t.match(program('simulate'), /^101 ran on cpu 0 were wrong\na slower car cuts in \w+ \d/)
  t.match(program('simulate-algorithm'), /^cruise 0 \{ collision: 0, jerk: \d/)
  t.match(program('simulate-compare'), /^jerk in 60 scenarios: -?\d.*\n95 %: /)
  t.match(program('simulate-environment'), /^64 x 2 x 11 speed, acceleration, targetSpeed\nmean reward -\d/)
  t.match(program('simulate-world'), /^scenario 0 finished \d.*\nfull finished \d/)

  await t.test('dgx-spark', async t => {
    const main = path.join(root, 'dist/cli/main.js')
    const all = pages.flatMap(commands).map(command => command.replace(/^npx /, ''))
    const ours = new Set(all.filter(command => command.startsWith('dgx-spark ') && !command.includes('<')))
    for (const command of ours) {
      const args = command.split(' ').slice(1)
      const long = atLength.find(name => command.startsWith(`dgx-spark ${name}`))
      const { status, output } = run([main, ...(long ? [...long.split(' '), '--help'] : args)], cwd)
      t.ok(status === 0 || (args[0] === 'check' && status === 1), `${command}: ${output}`)
      for (const option of args.filter(arg => long && arg.startsWith('--'))) t.match(output, option, command)
    }
  })
})

t.test('other commands name what exists', async t => {
  const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
  const known = [
    /^npm (install|test|ci|pack)\b/,
    /^git clone /,
    /^tar xf /,
    /^cd /,
    /^dgx-spark-gpu\/run\.sh/,
    /^[a-z]+=\S+/,
  ]
  for (const page of pages) {
    for (const command of commands(page).flatMap(line => line.split(' && '))) {
      const [program, first = '', second = ''] = command.replace(/^([A-Z_]+=\S+ )+/, '').split(' ')
      const where = `${page.name}: ${command}`
      if (program === 'npx' || program === 'dgx-spark') t.ok(first, where)
      else if (program === 'npm' && first === 'run') t.ok(scripts[second], where)
      else if (program === 'node') {
        const file = command.split(' ').find(word => /\.(js|ts|cjs)$/.test(word))
        t.ok(file && existsSync(path.join(root, file)), where)
      } else if (program === './quickstart.sh') t.match(first, /^(test)?$/, where)
      else
        t.ok(
          known.some(pattern => pattern.test(command)),
          where,
        )
    }
  }
  t.equal(spawnSync('bash', ['-n', path.join(root, 'quickstart.sh')]).status, 0)
})
