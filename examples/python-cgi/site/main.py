"""The program: one request of CGI, answered by a WSGI application."""

from wsgiref.handlers import CGIHandler

from app import application

CGIHandler().run(application)
