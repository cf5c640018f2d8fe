"""Seeded synthetic aerial scenes with exact boxes: `render_scene` in, pixels, boxes and labels out."""

from vgtok.data.synthetic.objects import NAMES
from vgtok.data.synthetic.scene import LAYOUTS, Scene, SceneConfig, Setting, render_scene

__all__ = ["LAYOUTS", "NAMES", "Scene", "SceneConfig", "Setting", "render_scene"]
