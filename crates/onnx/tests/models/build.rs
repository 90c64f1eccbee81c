//! Models built of messages, as a test says them.

use prost::Message;
use prost::bytes::Bytes;
use tiled_graph::{Graph, Op};
use tiled_onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use tiled_onnx::{Model, OnnxError, Refusal, from_bytes};

/// A model that grows by one call for each thing.
#[derive(Clone)]
pub(crate) struct Builder {
    pub(crate) model: ModelProto,
}

impl Builder {
    /// A model of these operators with an input `x` of so many channels and any size.
    pub(crate) fn new(opset: i64, channels: i64) -> Self {
        let opset_import = vec![OperatorSetIdProto { domain: None, version: Some(opset) }];
        let model = ModelProto {
            ir_version: Some(8),
            opset_import,
            graph: Some(GraphProto::default()),
            ..ModelProto::default()
        };
        Self { model }.input("x", &[None, Some(channels), None, None])
    }

    pub(crate) fn graph(&mut self) -> &mut GraphProto {
        self.model.graph.as_mut().unwrap()
    }

    pub(crate) fn input(mut self, name: &str, shape: &[Option<i64>]) -> Self {
        self.graph().input.push(value(name, 1, shape));
        self
    }

    pub(crate) fn output(mut self, name: &str) -> Self {
        self.graph().output.push(value(name, 1, &[]));
        self
    }

    pub(crate) fn node(
        mut self,
        op: &str,
        inputs: &[&str],
        output: &str,
        attributes: &[(&str, Attribute)],
    ) -> Self {
        self.graph().node.push(NodeProto {
            input: inputs.iter().map(|name| (*name).to_owned()).collect(),
            output: vec![output.to_owned()],
            name: Some(format!("n_{output}")),
            op_type: Some(op.to_owned()),
            attribute: attributes.iter().map(|(name, value)| value.proto(name)).collect(),
            domain: None,
        });
        self
    }

    /// An initialiser of floats that counts up by 1/8 from −1.
    pub(crate) fn floats(self, name: &str, dims: &[i64]) -> Self {
        let len: i64 = dims.iter().product();
        let values: Vec<f32> = (0..len).map(|place| (place % 17) as f32 / 8.0 - 1.0).collect();
        self.tensor(float_tensor(name, dims, &values))
    }

    pub(crate) fn ints(self, name: &str, dims: &[i64], values: &[i64]) -> Self {
        self.tensor(int_tensor(name, dims, values))
    }

    pub(crate) fn tensor(mut self, tensor: TensorProto) -> Self {
        self.graph().initializer.push(tensor);
        self
    }

    /// The graph as a node has it among its attributes, without inputs.
    pub(crate) fn branch(mut self) -> Attribute {
        self.graph().input.clear();
        self.body()
    }

    /// The graph as a node has it among its attributes.
    pub(crate) fn body(mut self) -> Attribute {
        Attribute::Graph(self.graph().encode_to_vec().into())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.model.encode_to_vec()
    }

    pub(crate) fn read(&self) -> Result<Model, OnnxError> {
        from_bytes(self.bytes(), None)
    }

    /// What is refused, each in words.
    pub(crate) fn refusals(&self) -> Vec<String> {
        match self.read() {
            Err(OnnxError::Refused { refusals }) => refusals.iter().map(Refusal::to_string).collect(),
            other => panic!("{other:?} is no refusal"),
        }
    }
}

/// The network of a model that is read.
pub(crate) fn graph(model: &Builder) -> Graph {
    model.read().unwrap_or_else(|error| panic!("{error}")).graph
}

pub(crate) fn ops(model: &Builder) -> Vec<Op> {
    graph(model).nodes().iter().map(|node| node.op.clone()).collect()
}

pub(crate) fn names(model: &Builder) -> Vec<&'static str> {
    graph(model).nodes().iter().map(|node| node.op.name()).collect()
}

/// The only refusal of a model.
pub(crate) fn only(model: &Builder) -> String {
    let refusals = model.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    refusals[0].clone()
}

/// The only refusal of a model, without the place.
pub(crate) fn reason(model: &Builder) -> String {
    only(model).split_once(": ").unwrap().1.to_owned()
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Floats(Vec<f32>),
    Text(&'static str),
    Tensor(Box<TensorProto>),
    Graph(Bytes),
}

impl Attribute {
    fn proto(&self, name: &str) -> AttributeProto {
        let name = Some(name.to_owned());
        let empty = AttributeProto { name, ..AttributeProto::default() };
        match self.clone() {
            Self::Float(f) => AttributeProto { f: Some(f), r#type: Some(1), ..empty },
            Self::Int(i) => AttributeProto { i: Some(i), r#type: Some(2), ..empty },
            Self::Text(s) => {
                AttributeProto { s: Some(Bytes::from_static(s.as_bytes())), r#type: Some(3), ..empty }
            }
            Self::Tensor(t) => AttributeProto { t: Some(t), r#type: Some(4), ..empty },
            Self::Graph(g) => AttributeProto { g: Some(g), r#type: Some(5), ..empty },
            Self::Floats(floats) => AttributeProto { floats, r#type: Some(6), ..empty },
            Self::Ints(ints) => AttributeProto { ints, r#type: Some(7), ..empty },
        }
    }
}

pub(crate) fn ints(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}

pub(crate) fn value(name: &str, elem_type: i32, shape: &[Option<i64>]) -> ValueInfoProto {
    let dim =
        shape.iter().map(|dim_value| DimensionProto { dim_value: *dim_value, dim_param: None }).collect();
    let shape = Some(TensorShapeProto { dim });
    let tensor_type = Some(TensorTypeProto { elem_type: Some(elem_type), shape });
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(TypeProto { tensor_type }) }
}

pub(crate) fn float_tensor(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: dims.to_vec(),
        data_type: Some(1),
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A tensor of singles that lies beside the model, where these keys say.
pub(crate) fn outside(name: &str, dims: &[i64], keys: &[(&str, &str)]) -> TensorProto {
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
        key: Some((*key).to_owned()),
        value: Some((*value).to_owned()),
    };
    TensorProto {
        external_data: keys.iter().map(entry).collect(),
        data_location: Some(1),
        ..float_tensor(name, dims, &[])
    }
}

pub(crate) fn int_tensor(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: dims.to_vec(),
        data_type: Some(7),
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}
