// app.js: what is bundled: a program without files of its own.
import { GraphBuilder, Model } from 'dgx-spark'

const g = new GraphBuilder()
g.output(g.add('Relu', [g.input('x', 'f32', [2])]), 'y')
Model.fromGraph(g.build()).then(async model => {
  const { y } = await model.run({ x: [-1, 2] })
  console.log(model.backend.name, [...y.data].join())
})
