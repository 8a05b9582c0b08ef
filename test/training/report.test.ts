// The page about a training: every curve is there, odd values do no harm, names are escaped.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { TrainingEvent } from '#lib/training/options.js'
import { reportPage, writeReport } from '#lib/training/report.js'

const event = (step: number, loss: number): TrainingEvent => ({
  step,
  epoch: 1,
  loss,
  learningRate: 1e-3,
  gradientNorm: 2 / step,
  samplesPerSecond: 100,
  memory: { plan: 1, process: 2 },
})

t.test('curves', async t => {
  const events = [3, 2, Number.NaN, 1].map((loss, i) => event(i + 1, loss))
  const file = path.join(t.testdir(), 'report.html')
  await writeReport(file, events, { title: 'a <b>', facts: [['model', '"x" & y']] })
  const page = readFileSync(file, 'utf8')
  t.match(page, /<title>a &#60;b&#62;<\/title>/)
  t.match(page, /&#34;x&#34; &#38; y/)
  t.equal(page.match(/<svg/g)?.length, 4)
  const [loss] = page.match(/class="raw" points="([^"]*)"/)!.slice(1)
  const points = loss!.split(' ').map(point => point.split(',').map(Number))
  t.equal(points.length, 3, 'a loss that is no number is left out')
  t.ok(points[0]![1]! < points[2]![1]!, 'a smaller loss is lower')
  t.notMatch(page, /NaN/)
  t.notMatch(page, /https?:|<script/)
})

t.test('one step and none', async t => {
  t.notMatch(reportPage([event(5, 0)]), /NaN|Infinity/)
  t.notMatch(reportPage([]), /<svg/)
})
