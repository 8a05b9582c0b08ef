// `dgx-spark finetune`: methods, losses, optimizers, schedules, validation, and what is said of the data.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { writeOnnx } from '#lib/io/onnx/save.js'
import { readEvents, readValidations } from '#lib/training/log.js'
import { runFinetune as finetune, writeTrainingFiles } from '../fixtures/cli/finetune.js'
import { smallModel } from '../fixtures/models/trainable.js'

t.test('validation of a share of the data, metrics, patience, and the report of all that', async t => {
  const { model, data, output } = await writeTrainingFiles(t.testdir(), 62)
  const options =
    '--validation 0.2 --metrics accuracy --monitor accuracy --patience 2 --lr 0.05 --rank 3 --alpha 6'
  const more = '--epochs 9 --batch-size 8 --schedule cosine --warmup 2 --optimizer sgd --weight-decay 0.01'
  const outcome = await finetune([
    '--model',
    model,
    '--data',
    data,
    '--output',
    output,
    ...`${options} ${more}`.split(' '),
  ])
  t.equal(outcome.code, 0, outcome.stderr)
  t.match(outcome.stdout, /data {2}60 samples: x f32 \[7\], target i32 \[\]/)
  t.match(outcome.stdout, /48 samples to train on, 12 to validate with/)
  t.match(outcome.stderr, /validation after epoch 1: loss [\d.]+ {2}accuracy [\d.]+ {2}\(best\)/)
  const log = path.join(output, 'log.jsonl')
  const [events, validations] = [await readEvents(log), await readValidations(log)]
  t.equal(validations.length, Math.ceil(events.length / 6))
  t.strictSame(
    events.slice(0, 3).map(({ learningRate }) => learningRate),
    [0, 0.025, 0.05],
  )
  t.ok(existsSync(path.join(output, 'checkpoints/best.safetensors')))
  const page = readFileSync(path.join(output, 'report.html'), 'utf8')
  for (const [name, value] of [
    ['rank', 3],
    ['alpha', 6],
    ['method', 'dora'],
    ['optimizer', 'sgd'],
    ['learning rate', 0.05],
    ['schedule', 'cosine'],
    ['warm-up steps', 2],
    ['epochs', 9],
    ['seed', 0],
    ['validation', 0.2],
  ]) {
    t.match(page, `<th>${name}</th><td>${value}</td>`)
  }
  t.match(page, /<th>dgx-spark<\/th><td>\d+\.\d+\.\d+/)
  t.match(page, /<h2>validation loss<\/h2>\n<svg.*polyline/)
  t.match(page, /<h2>validation accuracy<\/h2>/)
})

t.test('LoRA, and the whole model with a validation folder', async t => {
  const { model, data, output } = await writeTrainingFiles(t.testdir(), 20)
  const args = (method: string) => ['--model', model, '--data', data, '--epochs', '1', '--method', method]
  const lora = await finetune([...args('lora'), '--output', output, '--rank', '2', '--validation', data])
  t.equal(lora.code, 0, lora.stderr)
  t.match(lora.stdout, /validation {2}18 samples/)
  const config = JSON.parse(readFileSync(path.join(output, 'adapter_config.json'), 'utf8'))
  t.match(config, { r: 2, use_dora: false })
  const full = await finetune([...args('full'), '--output', `${output}-full`, '--lr', '0.01'])
  t.match(full, { code: 0, stdout: /the model is in .*model\.onnx/ }, full.stderr)
  t.notOk(readFileSync(path.join(`${output}-full`, 'model.onnx')).equals(readFileSync(model)))
  t.notMatch(readFileSync(path.join(`${output}-full`, 'report.html'), 'utf8'), /<th>rank/)
})

t.test('losses with settings, of a teacher, and from files', async t => {
  const dir = t.testdir()
  const { model, data, output } = await writeTrainingFiles(dir, 20)
  const teacher = path.join(dir, 'teacher.onnx')
  await writeOnnx(smallModel(7), teacher)
  const terms = path.join(dir, 'loss.json')
  writeFileSync(terms, JSON.stringify([{ type: 'cross-entropy' }, { type: 'kl', weight: 0.5, target: 'y' }]))
  const inputs = path.join(dir, 'inputs.mjs')
  const numbers = 'Float32Array.from({ length: 28 }, (_, i) => i / 28)'
  writeFileSync(inputs, `export default () => [{ x: { shape: [4, 7], data: ${numbers} } }]`)
  const dry = (...args: string[]) => finetune(['--model', model, '--output', output, '--dry-run', ...args])
  const works = { code: 0, stdout: /one step works: loss [\d.]+/ }
  for (const loss of ['kl', 'feature-distillation:output=y,temperature=2', 'path-distillation:laneLines=y']) {
    const outcome = await dry('--data', inputs, '--teacher', teacher, '--loss', loss)
    t.match(outcome, works, `${loss}: ${outcome.stderr}`)
  }
  t.match(await dry('--data', data, '--loss', terms), works)
  const wrong = async (loss: string, stderr: RegExp) =>
    t.match(await dry('--data', data, '--loss', loss), { code: 2, stderr })
  await wrong(
    'laplacian-nll',
    /needs mean and std: --loss laplacian-nll:mean=<output>,std=<output>; outputs: y/,
  )
  await wrong('gausian-nll', /no such loss \(did you mean 'gaussian-nll'\?\)/)
  await wrong('mse:ouput=y', /'ouput' \(did you mean 'output'\?\) must be one of output, target/)
})

t.test('what means nothing together', async t => {
  const { model, data, output } = await writeTrainingFiles(t.testdir(), 12)
  const base = ['--model', model, '--data', data, '--output', output]
  for (const [args, stderr] of [
    [['--patience', '3'], /--patience needs --validation: a path, or a share of --data such as 0.1/],
    [['--validation', '1.5'], /--validation 1.5: expected a path, or a fraction between 0 and 1/],
    [['--method', 'full', '--create-adapter'], /makes no adapter for --method full/],
    [
      ['--warmup', '3', '--schedule', 'reduce-on-plateau'],
      /--warmup needs --schedule constant, linear or cosine/,
    ],
    [['--validation', '0.5', '--metrics', 'acuracy'], /did you mean 'accuracy'/],
  ] as const) {
    t.match(await finetune([...base, ...args]), { stderr }, args.join(' '))
  }
  t.notOk(existsSync(path.join(output, 'adapter_model.safetensors')))
})
