// `dgx-spark finetune`: options, data with bad rows, dry run, interruption and resumption, in processes of their own.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readEvents } from '#lib/training/log.js'
import {
  runFinetune as finetune,
  type Outcome,
  writeTrainingFiles as prepare,
} from '../fixtures/cli/finetune.js'

const configIn = (folder: string): unknown =>
  JSON.parse(readFileSync(path.join(folder, 'adapter_config.json'), 'utf8'))

t.test('trains, and says what it did', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 42)
  const output = path.join(dir, 'out')
  const args = ['--model', model, '--data', data, '--output', output, '--epochs', '3', '--batch-size', '8']
  const { code, stdout, stderr } = await finetune([
    ...args,
    '--normalize',
    '0.5,0.5',
    '--targets',
    'fc0, fc1',
    '--dora-rank',
    '3',
  ])
  t.equal(code, 0, stderr)
  t.match(stderr, /2 rows or files of the data are left out, 40 are good/)
  t.match(stderr, /images-idx3-ubyte, row 3: labels is 9; there are 3 classes/)
  t.match(stderr, /epoch 3 {2}step 15 {2}loss/)
  t.match(stdout, /the adapter is in .*out/)
  t.match(configIn(output), { r: 3, use_dora: true, target_modules: ['fc0', 'fc1'] })
  t.equal((await readEvents(path.join(output, 'log.jsonl'))).length, 15)
  t.match(readFileSync(path.join(output, 'report.html'), 'utf8'), /<svg/)
  t.ok(existsSync(path.join(output, 'checkpoints', 'step-00000015.safetensors')))
})

t.test('--create-adapter and --dry-run', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 20)
  const output = path.join(dir, 'out')
  const dry = await finetune(['--model', model, '--data', data, '--output', output, '--dry-run'])
  t.match(dry, { code: 0, stdout: /one step works: loss [\d.]+; nothing was written/ })
  t.notOk(existsSync(output))
  const made = await finetune(['--model', model, '--output', output, '--create-adapter'])
  t.match(made, { code: 0, stdout: /the new adapter is in/ })
  t.match(configIn(output), { r: 16, lora_alpha: 16 })
  t.match(await finetune(['--model', model, '--output', output, '--create-adapter']), {
    code: 1,
    stderr: /has an adapter already/,
  })
  const file = ['--model', model, '--data', data, '--output', path.join(output, 'adapter_config.json')]
  t.match(await finetune(file), { code: 1, stderr: /it is a file, not a folder \[ERR_IO\]/ })
})

t.test('a training that begins anew leaves the checkpoints of another one alone', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 20)
  const output = path.join(dir, 'out')
  const args = ['--model', model, '--data', data, '--output', output, '--batch-size', '10', '--epochs', '2']
  t.equal((await finetune(args)).code, 0)
  const trained = readFileSync(path.join(output, 'adapter_model.safetensors'))
  const log = readFileSync(path.join(output, 'log.jsonl'), 'utf8')
  const again = await finetune([...args, '--seed', '1'])
  t.match(again, { code: 1, stderr: /step-00000004.*is a checkpoint of another training.*--resume/ })
  t.ok(trained.equals(readFileSync(path.join(output, 'adapter_model.safetensors'))), 'so is the adapter')
  t.equal(readFileSync(path.join(output, 'log.jsonl'), 'utf8'), log, 'and the log')
  const wider = await finetune([...args, '--resume', '--dora-rank', '5'])
  t.match(wider, {
    code: 1,
    stderr:
      /step-00000004.*was made with module \S+ {"rank":16,.*not {"rank":5,.*resume with.* \[ERR_ARGUMENT\]/,
  })
})

t.test('a second training into the same folder is refused', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 402)
  const output = path.join(dir, 'out')
  const args = ['--model', model, '--data', data, '--output', output, '--batch-size', '4', '--epochs', '4']
  let pid = 0
  let others: Promise<Outcome[]> | undefined
  const first = await finetune(args, /step 40/, child => {
    child.kill('SIGSTOP')
    pid = child.pid!
    const create = ['--model', model, '--output', output, '--create-adapter']
    others = Promise.all([finetune(args), finetune([...args, '--resume']), finetune(create)]).finally(() => {
      child.kill('SIGCONT')
    })
  })
  t.equal(first.code, 0, first.stderr)
  const stderr = new RegExp(`dgx-spark: .*out is in use by process ${pid} since .* \\[ERR_BUSY\\]`)
  for (const outcome of (await others) ?? []) t.match(outcome, { code: 1, stderr })
  const steps = (await readEvents(path.join(output, 'log.jsonl'))).map(({ step }) => step)
  t.same(
    steps,
    Array.from({ length: 400 }, (_, i) => i + 1),
  )
  t.same(
    readdirSync(output).filter(name => name.startsWith('.')),
    [],
  )
})

t.test('Ctrl-C saves; --resume ends where an uninterrupted run does', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 402)
  const args = (output: string) => [
    '--model',
    model,
    '--data',
    data,
    '--output',
    path.join(dir, output),
    '--epochs',
    '30',
    '--batch-size',
    '4',
    '--lr',
    '0.001',
    '--dora-dropout',
    '0.1',
    '--precision',
    'fp16',
  ]
  const straight = await finetune(args('straight'))
  t.equal(straight.code, 0, straight.stderr)
  const stopped = await finetune(args('stopped'), /step 300/)
  t.equal(stopped.code, 130, stopped.stderr)
  t.match(stopped.stdout, /interrupted: the adapter so far is in/)
  const resumed = await finetune([...args('stopped'), '--resume'])
  t.equal(resumed.code, 0, resumed.stderr)
  const [a, b] = ['straight', 'stopped'].map(name =>
    readFileSync(path.join(dir, name, 'adapter_model.safetensors')),
  )
  t.ok(b!.equals(a!), 'the same bytes')
})

t.test('--resume without a checkpoint says so', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 20)
  const args = [
    '--model',
    model,
    '--data',
    data,
    '--output',
    path.join(dir, 'out'),
    '--epochs',
    '1',
    '--resume',
  ]
  t.match(await finetune(args), {
    code: 0,
    stderr: /checkpoints has no checkpoint: the training begins anew/,
  })
  t.notMatch((await finetune(args)).stderr, /begins anew/)
})

t.test('what is refused', async t => {
  const dir = t.testdir()
  const { model, data } = await prepare(dir, 20)
  const base = ['--model', model, '--output', path.join(dir, 'out')]
  t.match(await finetune(base), { code: 2, stderr: /finetune needs --data/ })
  t.match(await finetune([...base, '--data', data, '--lr', 'fast']), {
    code: 2,
    stderr: /'--lr <rate>' argument 'fast' is invalid. expected a number from 0 on/,
  })
  t.match(await finetune([...base, '--data', data, '--normalize', '1']), { code: 2, stderr: /--normalize/ })
  t.match(await finetune([...base, '--data', data, '--clip', '0']), {
    code: 2,
    stderr: /expected a number above 0/,
  })
  t.match(await finetune(['--model', model, '--data', data, '--output', '']), {
    code: 2,
    stderr: /'--output <folder>' argument '' is invalid. expected a path/,
  })
  const thrown = path.join(dir, 'thrown.mjs')
  writeFileSync(thrown, 'export default function* () { throw undefined }')
  t.match(await finetune([...base, '--data', thrown]), { code: 1, stderr: /^dgx-spark: undefined\n$/m })
  if (process.platform === 'linux') {
    const nowhere = ['--model', model, '--data', data, '--output', '/proc/nowhere']
    t.match(await finetune(nowhere), { code: 1, stderr: /could not write \/proc\/nowhere/ })
  }
  t.match(await finetune([...base, '--data', data, '--epochs', '0']), { code: 2, stderr: /'--epochs <n>'/ })
  t.match(await finetune([...base, '--data', data, '--dora-dropout', '1']), {
    code: 2,
    stderr: /expected a number from 0 to less than 1/,
  })
  t.match(await finetune([...base, '--data', model]), { code: 1, stderr: /expected a folder of IDX/ })
  t.match(await finetune([...base, '--data', path.join(dir, 'none.mjs')]), {
    code: 1,
    stderr: /none\.mjs: no such file or folder \[ERR_IO\]/,
  })
  t.match(await finetune([...base, '--data', dir]), { code: 1, stderr: /no training data/ })
  t.match(await finetune([...base, '--data', data, '--precision', 'fp8']), {
    code: 2,
    stderr: /Allowed choices are fp32, fp16, bf16/,
  })
})
