// `dgx-spark finetune --preset openpilot`: drives, teachers, what is kept, what is said, and what is refused.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Adapter, Model, writeOnnx } from 'dgx-spark'
import t from 'tap'
import { runFinetune as finetune } from '../fixtures/cli/finetune.js'
import { type SmallModel, smallGraph } from '../fixtures/openpilot/small-models.js'
import { can } from '../fixtures/route/write-log.js'
import { noFfmpeg } from '../fixtures/video/encode.js'
import { writeSegment } from '../fixtures/video/segment.js'

const policy: SmallModel = {
  inputs: { features_buffer: { shape: [1, 2, 3] }, traffic_convention: { shape: [1, 2] } },
  outputs: { plan: 990, desire_state: 8 },
}
const folder = t.testdir({ drives: {} })
const file = (name: string): string => path.join(folder, name)
const drives = file('drives')

t.before(async () => {
  const image = { shape: [1, 12, 128, 256], dtype: 'u8' } as const
  await writeOnnx(smallGraph({ inputs: { img: image }, outputs: { hidden_state: 3 } }), file('vision.onnx'))
  await writeOnnx(smallGraph(policy), file('policy.onnx'))
  await writeOnnx(smallGraph({ ...policy, outputs: { desire_state: 8, plan: 990 } }), file('teacher.onnx'))
  if (noFfmpeg) return
  writeSegment(drives, 0, 24)
  writeSegment(drives, 1, 16)
})

const models = ['--preset', 'openpilot', '--model', file('policy.onnx'), '--vision', file('vision.onnx')]
const small = ['--rank', '2', '--backend', 'cpu', '--batch-size', '8']
const withData = [...models, '--data', drives, '--teacher', file('teacher.onnx')]

t.test('a drive', { skip: noFfmpeg }, async t => {
  const output = file('adapter')
  const about = ['--condition', 'night', '--car', 'A CAR']
  const run = ['--epochs', '3', '--lr', '0.01', ...about, '--output', output]
  const first = await finetune([...withData, ...small, ...run])
  t.equal(first.code, 0, first.stderr)
  t.match(first.stdout, /2 segments of 1 drive\n/)
  t.match(first.stdout, /frames +40 in [\d.]+ s/)
  for (const stage of ['log', 'waiting for frames', 'pack and warp', 'vision and teacher', 'write'])
    t.match(first.stdout, new RegExp(`${stage} +\\d+ frames/s, [\\d.]+ s`))
  t.match(first.stdout, /36 frames to train on, 4 to validate with/)
  t.match(first.stderr, /validation after epoch 3: loss/)
  using model = await Model.load(file('policy.onnx'), { backend: 'cpu' })
  const { training } = await Adapter.load(model, output)
  t.match(training, {
    car: 'A CAR',
    condition: 'night',
    routes: ['2024-01-02--03-04-05'],
    segments: 2,
    teacher: 'teacher.onnx',
    vision: 'vision.onnx',
    epochs: 3,
  })
  t.ok(existsSync(path.join(output, 'report.html')))

  const again = await finetune([
    ...withData,
    ...small,
    '--epochs',
    '1',
    '--output',
    file('second'),
    '--cache',
    path.join(output, 'teacher'),
  ])
  t.equal(again.code, 0, again.stderr)
  t.match(again.stdout, /frames +40, all of them kept from before/)
})

t.test('Ctrl-C while the teacher is asked', { skip: noFfmpeg }, async t => {
  const args = [...withData, ...small, '--epochs', '1', '--output', file('stopped')]
  const stopped = await finetune(args, /teacher: /)
  t.equal(stopped.code, 130)
  t.match(stopped.stdout, /interrupted: what the teacher said is kept/)
  const { code, stderr } = await finetune(args)
  t.equal(code, 0, stderr)
})

t.test('a dry run', async t => {
  const output = file('nothing')
  const { code, stdout, stderr } = await finetune([...models, ...small, '--output', output, '--dry-run'])
  t.equal(code, 0, stderr)
  t.match(stderr, /the model learns from itself/)
  t.match(stdout, /estimate for +1 minute, without --data/)
  t.match(stdout, /teacher +1200 frames, .+ at [\d.]+ frames\/s/)
  t.match(stdout, /training +1350 steps, .+ at .+ s each/)
  t.match(stdout, /disk +[\d.]+ MiB in .+nothing/)
  t.match(stdout, /2 steps work: loss .+; nothing was written/)
  t.notOk(existsSync(output))
})

t.test('what is refused', async t => {
  const logs = file('logs/2024-01-02--03-04-05--0')
  mkdirSync(logs, { recursive: true })
  writeFileSync(path.join(logs, 'rlog'), can(1n, 2, [3], 0))
  const output = ['--output', file('refused')]
  for (const [args, message] of [
    [models, /--preset openpilot needs --data/],
    [[...withData, '--loss', 'mse'], /--loss mse means nothing/],
    [[...withData, '--validation', 'folder'], /takes a share between 0 and 1/],
    [[...withData, '--metrics', 'mae'], /no --metrics/],
    [[...models, '--data', file('logs')], /without video|logs only/],
    [
      ['--preset', 'openpilot', '--model', file('policy.onnx'), '--dry-run'],
      /vision must be a driving model for a policy/,
    ],
    [[...models, '--data', file('none')], /none/],
    [['--preset', 'other', '--model', file('policy.onnx')], /Allowed choices are openpilot/],
  ] as const) {
    const { code, stderr } = await finetune([...args, ...small, ...output])
    t.not(code, 0)
    t.match(stderr, message)
    t.notMatch(stderr, /\n {4}at /, 'no stack')
  }
  t.notOk(existsSync(file('refused/adapter_model.safetensors')))
})
